/** TLS of the listener: its certificate, which a reload replaces, and the connections from the handshake on. */

import { constants } from 'node:crypto'
import type { Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import { createServer, type Server, type TLSSocket } from 'node:tls'
import type { Secret } from '../secret.ts'
import { type ClientCertificate, certificateOf } from './client-certificate.ts'
import { type Handshake, TlsPeers } from './tls-peers.ts'

/** The content of the files, all in PEM. */
export interface TlsSettings {
  /** The certificate of the listener, and its chain. Undefined: plain HTTP. */
  readonly certFile?: { readonly content: string } | undefined
  readonly keyFile?: { readonly content: Secret } | undefined
  /** If set, clients are asked for a certificate, which these CAs must have issued. */
  readonly clientCaFile?: { readonly content: string } | undefined
}

export interface TlsEvents {
  /** A handshake has ended well. `carrier` is the TCP socket. */
  opened(socket: TLSSocket, carrier: Socket, certificate: ClientCertificate | undefined): void
  handshakeFailed(code: string | undefined): void
}

const CERTIFICATE = /-----BEGIN[^-]+-----[^-]+-----END/g

const { SSL_OP_NO_RENEGOTIATION, SSL_OP_NO_TICKET } = constants

/** What a handshake may take. The hello of a client has up to 2 KiB, and a chain of four certificates with RSA-4096 has 7. */
const MAX_HANDSHAKE_BYTES = 16 * 1024
/** A handshake that fails with less than this had no certificate. */
const MIN_CERTIFICATE_BYTES = 4 * 1024
/** If a handshake fails after more than this, the others of its address end, too: each may cost as much. */
const LARGE_HANDSHAKE_BYTES = 8 * 1024
/** So many bytes may have come that cannot be decrypted yet. */
const MAX_RECORD_BYTES = 17 * 1024
/** Between two looks at what connections have sent. */
const LOOK_MS = 200

/** A TCP connection whose handshake waits or goes on. */
class Opening implements Handshake {
  readonly carrier: Socket
  readonly address: string
  /** Monotonic milliseconds. */
  readonly acceptedAt = performance.now()
  /** It was accepted when another CA of clients was trusted, which is now gone. */
  isDistrusted = false
  hasStarted = false
  readonly #start: (carrier: Socket) => void

  constructor(carrier: Socket, start: (carrier: Socket) => void) {
    this.carrier = carrier
    this.address = carrier.remoteAddress ?? ''
    this.#start = start
  }

  start(): void {
    this.hasStarted = true
    this.#start(this.carrier)
  }
}

/** An open connection, and what it has sent. */
interface Traffic {
  readonly carrier: Socket
  readonly address: string
  /** The least excess so far. What came since then beyond one record is neither content nor what content needs. */
  leastExcessBytes: number
  countedBytes: number
  /** All bytes at the last look. */
  seenBytes: number
}

export class ListenerTls {
  #settings: TlsSettings
  /** It listens nowhere: sockets are given to it. A reload replaces it. */
  #server: Server
  readonly #handshakeTimeoutMs: number
  readonly #events: TlsEvents
  /** The oldest first. */
  readonly #openings = new Map<string, Opening>()
  readonly #traffic = new Map<TLSSocket, Traffic>()
  readonly #peers: TlsPeers
  readonly #looking: NodeJS.Timeout

  /** `handshakeTimeoutMs`: for all of a handshake. */
  constructor(settings: TlsSettings, handshakeTimeoutMs: number, events: TlsEvents) {
    this.#settings = settings
    this.#handshakeTimeoutMs = handshakeTimeoutMs
    this.#events = events
    this.#server = this.#newServer(settings)
    this.#peers = new TlsPeers(handshakeTimeoutMs / 2)
    this.#looking = setInterval(() => this.#look(performance.now()), LOOK_MS).unref()
  }

  get handshakes(): number {
    return this.#openings.size
  }

  #newServer({ certFile, keyFile, clientCaFile }: TlsSettings): Server {
    const asksForCertificate = clientCaFile !== undefined
    const server = createServer({
      cert: certFile?.content,
      key: keyFile?.content.reveal(),
      ca: clientCaFile?.content,
      minVersion: 'TLSv1.2',
      // A resumed session brings the certificate of its first handshake, however old that is, and whatever the client has now.
      secureOptions: asksForCertificate ? SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET : SSL_OP_NO_RENEGOTIATION,
      ALPNProtocols: ['http/1.1'], // a client that offers only others gets an alert
      handshakeTimeout: this.#handshakeTimeoutMs,
      requestCert: asksForCertificate,
      rejectUnauthorized: false, // a client without a good certificate may have a key or a JWT
    })
    server.on('secureConnection', (socket) => this.#secured(socket, asksForCertificate))
    server.on('tlsClientError', ({ code }: NodeJS.ErrnoException, socket) => {
      socket.destroy()
      this.#events.handshakeFailed(code)
    })
    return server
  }

  /** Begins the handshake on a connection that was just accepted. */
  begin(carrier: Socket): void {
    const name = nameOf(carrier)
    const opening = new Opening(carrier, (socket) => this.#server.emit('connection', socket))
    this.#openings.set(name, opening)
    carrier.allowHalfOpen = false // a client that ends its side during the handshake has left
    carrier.on('error', () => undefined) // it may break while it waits
    carrier.once('close', () => this.#closed(name, opening))
    this.#peers.enter(opening, opening.acceptedAt)
  }

  /** The handshake has failed, unless it has ended before. */
  #closed(name: string, opening: Opening): void {
    const now = performance.now()
    if (this.#openings.get(name) === opening) {
      this.#openings.delete(name)
      const { bytesRead } = opening.carrier
      if (bytesRead >= MIN_CERTIFICATE_BYTES) this.#blame(opening.address, bytesRead, now)
    }
    this.#peers.leave(opening, now)
  }

  #secured(socket: TLSSocket, asksForCertificate: boolean): void {
    // Undefined if the client has reset the connection meanwhile, so that it has no address any more.
    const name = nameOf(socket)
    const opening = this.#openings.get(name)
    const certificate = asksForCertificate ? certificateOf(socket) : undefined
    this.#openings.delete(name)
    if (opening === undefined || (opening.isDistrusted && certificate !== undefined)) {
      socket.destroy()
      return
    }
    const { carrier } = opening
    socket.allowHalfOpen = true
    carrier.allowHalfOpen = true
    this.#events.opened(socket, carrier, certificate)
    // Content may have come with the end of the handshake, and is decrypted by then.
    setImmediate(() => this.#judge(socket, opening, certificate?.isVerified !== false))
  }

  /** What the handshake took. Then the address may begin its next one. */
  #judge(socket: TLSSocket, opening: Opening, isGood: boolean): void {
    const now = performance.now()
    const { carrier, address } = opening
    const bytes = carrier.bytesRead - socket.bytesRead
    const isTooLarge = bytes > MAX_HANDSHAKE_BYTES + MAX_RECORD_BYTES
    if (!isGood || isTooLarge) this.#blame(address, bytes, now)
    if (isTooLarge) socket.destroy()
    if (!socket.destroyed) {
      const leastExcessBytes = excessOf(socket, carrier)
      this.#traffic.set(socket, { carrier, address, leastExcessBytes, countedBytes: 0, seenBytes: 0 })
      socket.once('close', () => this.#traffic.delete(socket))
    }
    this.#peers.leave(opening, now)
  }

  /** Ends large handshakes of the same address that go on: each may cost as much. */
  #blame(address: string, bytes: number, now: number): void {
    this.#peers.blame(address, bytes, now)
    if (bytes <= LARGE_HANDSHAKE_BYTES) return
    for (const [name, opening] of this.#openings) {
      if (opening.address === address && opening.hasStarted) this.#drop(name, opening)
    }
  }

  #look(now: number): void {
    for (const [name, opening] of this.#openings) {
      const { carrier, address, acceptedAt } = opening
      if (carrier.bytesRead > MAX_HANDSHAKE_BYTES) this.#blame(address, carrier.bytesRead, now)
      else if (now - acceptedAt >= this.#handshakeTimeoutMs) {
        this.#drop(name, opening)
        this.#events.handshakeFailed('ERR_TLS_HANDSHAKE_TIMEOUT')
      }
    }
    for (const [socket, traffic] of this.#traffic) {
      const { bytesRead } = traffic.carrier
      if (bytesRead === traffic.seenBytes) continue // most connections are idle
      traffic.seenBytes = bytesRead
      const newBytes = countExcess(traffic, excessOf(socket, traffic.carrier))
      if (newBytes > 0 && this.#peers.exceeds(traffic.address, newBytes, now)) socket.destroy()
    }
    this.#peers.tick(now)
  }

  /** Ends the oldest handshake. Returns false if there is none. */
  dropOldest(): boolean {
    const [oldest] = this.#openings
    if (oldest !== undefined) this.#drop(...oldest)
    return oldest !== undefined
  }

  #drop(name: string, { carrier }: Opening): void {
    this.#openings.delete(name)
    carrier.destroy()
  }

  /**
   * Returns a function that makes later handshakes use `settings`, and cannot fail. A new context has new ticket keys, so no
   * session from before can be resumed. The function returns true if a CA of clients is gone; then a handshake that has begun
   * fails if its client shows a certificate. @throws if the certificates cannot be used.
   */
  prepare(settings: TlsSettings): () => boolean {
    const former = this.#settings
    if (isSame(settings, former)) return () => false
    const server = this.#newServer(settings)
    return () => {
      const remaining = settings.clientCaFile?.content ?? ''
      this.#server = server
      this.#settings = settings
      const isOneGone = former.clientCaFile?.content.match(CERTIFICATE)?.some((ca) => !remaining.includes(ca)) === true
      if (isOneGone) for (const opening of this.#openings.values()) opening.isDistrusted = opening.hasStarted
      return isOneGone
    }
  }

  /** Ends all handshakes. */
  endHandshakes(): void {
    for (const [name, opening] of this.#openings) this.#drop(name, opening)
  }

  close(): void {
    clearInterval(this.#looking)
    this.endHandshakes()
  }
}

function isSame(one: TlsSettings, other: TlsSettings): boolean {
  const textsOf = ({ certFile, keyFile, clientCaFile }: TlsSettings) =>
    [certFile?.content, keyFile?.content.reveal(), clientCaFile?.content].join('\n')
  return textsOf(one) === textsOf(other)
}

/** The bytes that were no content, and more than content needs: a record of 11 bytes, the least in practice, has 22 around it. */
function excessOf(socket: TLSSocket, carrier: Socket): number {
  return carrier.bytesRead - 3 * socket.bytesRead
}

/** Returns what has not been counted yet. */
function countExcess(traffic: Traffic, excessBytes: number): number {
  if (excessBytes < traffic.leastExcessBytes) {
    traffic.leastExcessBytes = excessBytes
    traffic.countedBytes = 0
  }
  const newBytes = excessBytes - traffic.leastExcessBytes - MAX_RECORD_BYTES - traffic.countedBytes
  if (newBytes > 0) traffic.countedBytes += newBytes
  return newBytes
}

/** The same for a TCP socket and for the TLS socket on it, and for no other connection that is open. */
function nameOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`
}
