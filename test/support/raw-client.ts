/** A client that sends exactly the given bytes, and reads the answers strictly. */

import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { ByteReader, type RawResponse, readAnyResponse, readResponse, type StreamEnd, valuesOf } from './http-reader.ts'
import { resetNow } from './reset-now.ts'

export type { RawResponse } from './http-reader.ts'

export interface RawClientOptions {
  /** For each single wait, on a quiet machine. */
  readonly deadlineMs?: number
  readonly host?: string
  /** The local address of the connection. */
  readonly localAddress?: string
}

/** The ports of proxies that speak TLS only because `TEST_TLS` is set. */
export const tlsPorts = new Set<number>()
/** The unix sockets of proxies that listen there only because `TEST_UNIX` is set, by a number that stands for their port. */
export const unixPorts = new Map<number, string>()
/** A unix socket has no RST, so its peer cannot tell a broken connection from one that ended. */
export const knowsReset = process.env['TEST_UNIX'] !== '1'

export class RawClient implements AsyncDisposable {
  readonly socket: Socket
  readonly #reader: ByteReader

  private constructor(socket: Socket, deadlineMs = 5_000) {
    this.socket = socket.setNoDelay(true)
    this.#reader = ByteReader.on(socket, deadlineMs)
  }

  /** Over TLS, if the tests run over TLS and a proxy of theirs listens there. `at` is a port or the path of a unix socket. */
  static async connect(at: number | string, options: RawClientOptions = {}): Promise<RawClient> {
    if (typeof at === 'string' || !tlsPorts.has(at)) return await RawClient.plain(at, options)
    const socket = connectTls({ socket: await openSocket(at, options), rejectUnauthorized: false })
    await once(socket, 'secureConnect')
    return new RawClient(socket, options.deadlineMs)
  }

  /** Over TCP or a unix socket, whatever listens there. */
  static async plain(at: number | string, options: RawClientOptions = {}): Promise<RawClient> {
    return new RawClient(await openSocket(at, options), options.deadlineMs)
  }

  /** Connects, and sends these bytes. */
  static async sending(at: number | string, bytes: string | Uint8Array, options?: RawClientOptions) {
    const client = await RawClient.connect(at, options)
    client.send(bytes)
    return client
  }

  /** All bytes that arrived. */
  get received(): Buffer {
    return this.#reader.received
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
  response(method = 'GET'): Promise<RawResponse> {
    return readResponse(this.#reader, method)
  }

  /** One 1xx or final response, whichever comes first. */
  nextHead(method = 'GET'): Promise<RawResponse> {
    return readAnyResponse(this.#reader, method)
  }

  bytes(count: number): Promise<Buffer> {
    return this.#reader.exactly(count)
  }

  /** Resolves when the text has arrived anywhere. Consumes nothing. */
  async untilBytes(text: string): Promise<void> {
    const { changes } = this.#reader
    await changes.until(() => this.received.includes(text, 0, 'latin1'), `the bytes ${JSON.stringify(text)}`)
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

async function openSocket(at: number | string, { host = '127.0.0.1', localAddress }: RawClientOptions) {
  const from = localAddress === undefined ? {} : { localAddress }
  const path = typeof at === 'string' ? at : unixPorts.get(at)
  const socket = connect(
    path === undefined ? { port: Number(at), host, allowHalfOpen: true, ...from } : { path, allowHalfOpen: true },
  )
  await once(socket, 'connect')
  return socket
}

/** One request on a connection of its own. */
export async function request(
  at: number | string,
  rawRequest: string,
  options: RawClientOptions = {},
): Promise<RawResponse> {
  await using client = await RawClient.sending(at, rawRequest, options)
  return await client.response(rawRequest.slice(0, rawRequest.indexOf(' ')))
}

export function fieldOf(response: RawResponse, name: string): string | undefined {
  return valuesOf(response.fields, name)[0]
}

/** The code of an error that the proxy made, or the status of the service. */
export function outcomeOf(response: RawResponse): string | number {
  const { status } = response
  return fieldOf(response, 'proxy-status') === undefined ? status : (problemOf(response).code ?? status)
}

/** The content as JSON; the proxy's own answers are `application/problem+json`. */
export function problemOf(response: RawResponse): { readonly code?: string; readonly [key: string]: unknown } {
  return JSON.parse(response.content.toString())
}
