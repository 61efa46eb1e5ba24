/** Records of TLS 1.3 as no library writes them: many KeyUpdates, or content cut into single bytes. */

import { createCipheriv, createHmac } from 'node:crypto'
import { once } from 'node:events'
import { connect as connectTcp, type Socket } from 'node:net'
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls'

const CIPHERS = {
  TLS_AES_128_GCM_SHA256: { algorithm: 'aes-128-gcm', hash: 'sha256', keyBytes: 16 },
} as const

const APPLICATION_DATA = 23
const HANDSHAKE = 22
const KEY_UPDATE = Buffer.from([24, 0, 0, 1, 0])

/** HKDF-Expand-Label (RFC 8446 §7.1) for results that fit into one block of the hash. */
function expand(hash: string, secret: Buffer, label: string, length: number): Buffer {
  const name = Buffer.from(`tls13 ${label}`, 'latin1')
  const info = Buffer.concat([Buffer.from([0, length, name.length]), name, Buffer.from([0, 1])])
  return createHmac(hash, secret).update(info).digest().subarray(0, length)
}

/** Sends records of its own over a connection whose handshake Node has made. */
export class RecordWriter {
  readonly socket: Socket
  /** Reads what the server sends. */
  readonly secure: TLSSocket
  readonly #cipher = CIPHERS.TLS_AES_128_GCM_SHA256
  #secret: Buffer
  #key: Buffer
  #iv: Buffer
  #sequence = 0

  private constructor(socket: Socket, secure: TLSSocket, secret: Buffer) {
    this.socket = socket
    this.secure = secure
    this.#secret = secret
    this.#key = this.#derived('key', this.#cipher.keyBytes)
    this.#iv = this.#derived('iv', 12)
  }

  static async connect(port: number, options: ConnectionOptions = {}): Promise<RecordWriter> {
    const socket = connectTcp({ port, host: '127.0.0.1' })
    socket.on('error', () => undefined)
    await once(socket, 'connect')
    const ciphers = Object.keys(CIPHERS).join()
    const secure = connect({ socket, ciphers, minVersion: 'TLSv1.3', rejectUnauthorized: false, ...options })
    const secret = new Promise<Buffer>((resolve) => {
      secure.on('keylog', (line: Buffer) => {
        const [label, , value = ''] = line.toString().trim().split(' ')
        if (label === 'CLIENT_TRAFFIC_SECRET_0') resolve(Buffer.from(value, 'hex'))
      })
    })
    secure.on('error', () => undefined)
    await once(secure, 'session') // the server has read all of the handshake
    return new RecordWriter(socket, secure, await secret)
  }

  #derived(label: string, length: number): Buffer {
    return expand(this.#cipher.hash, this.#secret, label, length)
  }

  #record(content: Buffer, type: number): Buffer {
    const nonce = Buffer.from(this.#iv)
    nonce.writeUInt32BE((nonce.readUInt32BE(8) ^ this.#sequence++) >>> 0, 8)
    const head = Buffer.from([APPLICATION_DATA, 3, 3, 0, 0])
    head.writeUInt16BE(content.length + 1 + 16, 3)
    const cipher = createCipheriv(this.#cipher.algorithm, this.#key, nonce).setAAD(head)
    const sealed = Buffer.concat([cipher.update(content), cipher.update(Buffer.from([type])), cipher.final()])
    return Buffer.concat([head, sealed, cipher.getAuthTag()])
  }

  keyUpdate(): Buffer {
    const record = this.#record(KEY_UPDATE, HANDSHAKE)
    this.#secret = this.#derived('traffic upd', this.#secret.length)
    this.#key = this.#derived('key', this.#cipher.keyBytes)
    this.#iv = this.#derived('iv', 12)
    this.#sequence = 0
    return record
  }

  /** A record of its own for each byte. */
  bytewise(text: string): Buffer {
    return Buffer.concat(
      Array.from(Buffer.from(text, 'latin1'), (byte) => this.#record(Buffer.from([byte]), APPLICATION_DATA)),
    )
  }
}
