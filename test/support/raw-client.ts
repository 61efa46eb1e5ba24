/** A client that sends exactly the given bytes, and reads the answers strictly. */

import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { ByteReader, type StreamEnd, StreamEnded } from './byte-reader.ts'
import { Changes } from './changes.ts'
import {
  declaredFraming,
  type FieldList,
  type Framing,
  MalformedMessage,
  readContent,
  readHead,
  valuesOf,
} from './http-message.ts'
import { scaled } from './pace.ts'
import { resetNow } from './reset-now.ts'

export interface RawResponse {
  readonly status: number
  readonly reason: string
  readonly version: string
  readonly fields: FieldList
  readonly content: Buffer
  readonly trailers: FieldList
  /** False if the connection ended inside the message. */
  readonly isComplete: boolean
  /** The 1xx responses before it. */
  readonly informational: readonly RawResponse[]
}

export interface RawClientOptions {
  /** For each single wait, on a quiet machine. */
  readonly deadlineMs?: number
  readonly host?: string
  /** The local address of the connection. */
  readonly localAddress?: string
}

/** The ports of proxies that speak TLS only because `TEST_TLS` is set. */
export const tlsPorts = new Set<number>()

export class RawClient implements AsyncDisposable {
  readonly socket: Socket
  readonly #reader: ByteReader
  readonly #received: Buffer[] = []
  readonly #changes = new Changes()

  private constructor(socket: Socket, deadlineMs: number) {
    this.socket = socket
    socket.setNoDelay(true)
    socket.on('data', (chunk: Buffer) => {
      this.#received.push(chunk)
      this.#changes.notify()
    })
    this.#reader = new ByteReader(socket, deadlineMs)
  }

  /** Over TLS, if the tests run over TLS and a proxy of theirs listens there. */
  static async connect(port: number | string, options: RawClientOptions = {}): Promise<RawClient> {
    const client = await RawClient.plain(port, options)
    if (typeof port === 'string' || !tlsPorts.has(port)) return client
    client.socket.removeAllListeners('data')
    const tls = connectTls({ socket: client.socket, rejectUnauthorized: false })
    await once(tls, 'secureConnect')
    return new RawClient(tls, scaled(options.deadlineMs ?? 5_000))
  }

  /** Over TCP or a unix socket, whatever listens there. */
  static async plain(port: number | string, options: RawClientOptions = {}): Promise<RawClient> {
    const socket =
      typeof port === 'string'
        ? connect({ path: port, allowHalfOpen: true })
        : connect({
            port,
            host: options.host ?? '127.0.0.1',
            allowHalfOpen: true,
            ...(options.localAddress === undefined ? {} : { localAddress: options.localAddress }),
          })
    await once(socket, 'connect')
    return new RawClient(socket, scaled(options.deadlineMs ?? 5_000))
  }

  /** Connects, and sends these bytes. */
  static async sending(port: number | string, bytes: string | Uint8Array, options?: RawClientOptions) {
    const client = await RawClient.connect(port, options)
    client.send(bytes)
    return client
  }

  /** All bytes that arrived. */
  get received(): Buffer {
    return Buffer.concat(this.#received)
  }

  /** Undefined while the peer may still send. */
  get end(): StreamEnd | undefined {
    return this.#reader.end
  }

  /** A string is sent as latin1: one character, one byte. */
  send(bytes: string | Uint8Array): void {
    this.socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes)
  }

  /** Sends FIN. The answer is still read. */
  endSending(): void {
    this.socket.end()
  }

  /** Sends RST. */
  reset(): void {
    resetNow(this.socket)
  }

  /** The next final response. `method` is that of its request: an answer to HEAD has no content. */
  async response(method = 'GET'): Promise<RawResponse> {
    const informational: RawResponse[] = []
    for (;;) {
      const response = await readResponse(this.#reader, method, informational)
      if (response.status >= 200 || response.status === 101) return response
      informational.push(response)
    }
  }

  /** One 1xx or final response, whichever comes first. */
  nextHead(method = 'GET'): Promise<RawResponse> {
    return readResponse(this.#reader, method, [])
  }

  bytes(count: number): Promise<Buffer> {
    return this.#reader.exactly(count)
  }

  /** Resolves when the text has arrived anywhere. Consumes nothing. */
  async untilBytes(text: string): Promise<void> {
    await this.#changes.until(() => this.received.includes(text, 0, 'latin1'), `the bytes ${JSON.stringify(text)}`)
  }

  /** All bytes until the peer ends or breaks the connection. */
  async untilClosed(): Promise<{ readonly bytes: Buffer; readonly end: StreamEnd }> {
    const bytes = await this.#reader.toEnd()
    return { bytes, end: this.#reader.end ?? 'fin' }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.socket.closed) return
    const closed = once(this.socket, 'close')
    this.socket.destroy()
    await closed
  }
}

/** One request on a connection of its own. */
export async function request(
  port: number | string,
  rawRequest: string,
  options: RawClientOptions = {},
): Promise<RawResponse> {
  await using client = await RawClient.sending(port, rawRequest, options)
  return await client.response(rawRequest.slice(0, rawRequest.indexOf(' ')))
}

const STATUS_LINE = /^(HTTP\/1\.[01]) (\d{3}) ([\t\x20-\x7e\x80-\xff]*)$/

async function readResponse(reader: ByteReader, method: string, informational: RawResponse[]): Promise<RawResponse> {
  const { startLine, fields } = await readHead(reader)
  const [, version = '', digits, reason = ''] = STATUS_LINE.exec(startLine) ?? []
  if (digits === undefined) throw new MalformedMessage(`status line ${JSON.stringify(startLine)}`)
  const status = Number(digits)
  const framing = responseFraming(method, status, fields)
  const pieces: Buffer[] = []
  let trailers: FieldList = []
  let isComplete = true
  try {
    trailers = await readContent(reader, framing, (bytes) => pieces.push(bytes))
  } catch (error) {
    if (!(error instanceof StreamEnded)) throw error
    isComplete = false
  }
  if (framing.kind === 'until-close' && reader.end === 'reset') isComplete = false
  return { status, reason, version, fields, content: Buffer.concat(pieces), trailers, isComplete, informational }
}

/** RFC 9112 §6.3. */
function responseFraming(method: string, status: number, fields: FieldList): Framing {
  const declared = declaredFraming(fields)
  const hasNoContent = method === 'HEAD' || status < 200 || status === 204 || status === 304
  return hasNoContent ? { kind: 'none' } : (declared ?? { kind: 'until-close' })
}

export function fieldOf(response: RawResponse, name: string): string | undefined {
  return valuesOf(response.fields, name)[0]
}

/** The content as JSON; the proxy's own answers are `application/problem+json`. */
export function problemOf(response: RawResponse): { readonly code?: string; readonly [key: string]: unknown } {
  return JSON.parse(response.content.toString())
}
