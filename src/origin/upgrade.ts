/**
 * One WebSocket handshake, on a connection of its own. The `http-proxy` library sends it, and carries the connection on
 * behind a 101. Any other response is handed to the exchange like the response to every request.
 */

import { Agent, type ClientRequest, type IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { createProxyServer } from 'http-proxy'
import { OriginError } from '../errors.ts'
import { groupFields } from '../http/fields.ts'
import { type ResponseHead, readResponseHead } from '../http/response-head.ts'
import type { Attempt, AttemptPlace, OriginRequest } from './attempt.ts'
import type { ConnectionHost, PooledConnection } from './connection.ts'
import type { Connector, Opening } from './connector.ts'
import { originError } from './origin-failure.ts'

export interface UpgradeHost extends ConnectionHost {
  /** It is a tunnel from here on, and no connection of the pool any more. */
  upgraded(tunnel: Upgrade): void
  tunnelClosed(tunnel: Upgrade): void
}

type Carry = (answer: IncomingMessage, service: Socket, firstBytes: Buffer) => void

const SWITCHING_PROTOCOLS = 101
const NOTHING = Buffer.alloc(0)

/** The target is not used: each call brings the connection that it goes on. */
const library = createProxyServer({ target: 'http://service', prependPath: false, xfwd: false })
// Errors reach us through the request. Without a listener here the library would throw them, too.
library.on('error', () => undefined)
library.on('proxyReqWs', (request, message) => {
  if (message instanceof HandshakeMessage) message.request = request
})

export class Upgrade implements AttemptPlace, PooledConnection {
  readonly #host: UpgradeHost
  readonly #client: Socket
  readonly #opening: Opening
  #attempt: Attempt | undefined
  #service: Socket | undefined
  #request: ClientRequest | undefined
  #answer: IncomingMessage | undefined
  #wasReset = false
  #isClosed = false

  /** Opens the connection. `client` is the client's connection. */
  constructor(connector: Connector, host: UpgradeHost, attempt: Attempt, client: Socket) {
    this.#host = host
    this.#client = client
    this.#attempt = attempt
    attempt.place = this
    this.#opening = connector.open(undefined, {
      opened: (socket) => this.#send(attempt, socket),
      failed: (reason) => this.#fail(reason),
    })
  }

  get isConnected(): boolean {
    return this.#service !== undefined
  }

  get attempt(): Attempt | undefined {
    return this.#attempt
  }

  #send(attempt: Attempt, service: Socket): void {
    this.#service = service
    // One side of a tunnel may finish before the other (RFC 6455 §7.1.1).
    service.allowHalfOpen = true
    // A reset right behind data is reported as an end, but leaves no peer.
    service.once('end', () => {
      this.#wasReset = service.remoteAddress === undefined
    })
    attempt.isConnected = true
    attempt.sink.connected()
    const message = new HandshakeMessage(attempt.request, this.#client)
    const agent = new OneConnection(service)
    library.ws(message as unknown as IncomingMessage, this.#client, { agent }, NOTHING).catch(() => undefined)
    if (message.request === undefined) this.#fail(new Error('http-proxy has sent no request'))
    else this.#listen(message.request, service)
  }

  /**
   * Takes the library's listeners off its request: it would open a tunnel behind any 101, and close the client's
   * connection on an error before we can answer. Its listener for a 101 is called once we have accepted the 101.
   */
  #listen(request: ClientRequest, service: Socket): void {
    this.#request = request
    const [carry] = request.listeners('upgrade') as Carry[]
    request.removeAllListeners('upgrade').removeAllListeners('response').removeAllListeners('error')
    request.on('error', (error) => this.#fail(originError(error)))
    request.once('response', (answer) => this.#relay(answer))
    request.once('upgrade', (answer, _, firstBytes) => {
      if (this.#accepts(answer)) this.#open(service, () => carry?.call(request, answer, service, firstBytes))
    })
  }

  /** Leaves in `answer` what the library may send to the client. */
  #accepts(answer: IncomingMessage): boolean {
    const head = readResponseHead(SWITCHING_PROTOCOLS, '', answer.rawHeaders)
    if (head === undefined || answer.headers.upgrade?.toLowerCase() !== 'websocket') {
      this.#fail(new OriginError('http_upgrade_failed', 'a 101 for another protocol'))
      return false
    }
    answer.headers = { Connection: 'Upgrade', Upgrade: 'websocket', ...groupFields(head.fields) }
    return true
  }

  #open(service: Socket, carry: () => void): void {
    const attempt = this.#detach()
    if (attempt === undefined) return
    attempt.sink.upgraded()
    this.#client.setDefaultEncoding('latin1') // the library writes the head as a string: each character is one byte
    carry()
    // A side that breaks breaks the other. The library alone would end the other side as if all had come.
    service.once('close', () => {
      if (!service.readableEnded) this.#client.destroy()
      this.#host.tunnelClosed(this)
    })
    this.#client.once('close', () => service.destroy())
    this.#host.upgraded(this)
  }

  /** Any response but an acceptable 101. A 101 that names no protocol comes here, too. */
  #relay(answer: IncomingMessage): void {
    const attempt = this.#attempt
    if (attempt === undefined) return
    const head = this.#headOf(answer)
    if (head === undefined) {
      const code = answer.statusCode === SWITCHING_PROTOCOLS ? 'http_upgrade_failed' : 'http_protocol_error'
      this.#fail(new OriginError(code, 'an unusable answer to a handshake'))
      return
    }
    this.#answer = answer
    attempt.hasResponse = true
    attempt.sink.responseHead(head)
    answer.on('data', (chunk: Buffer) => {
      if (attempt.sink.responseContent(chunk, 0, chunk.length) === 'full') answer.pause()
      attempt.sink.responsePaused()
    })
    answer.once('end', () => this.#answered(head))
    answer.once('error', () => this.#fail(BROKEN_OFF))
    answer.once('close', () => this.#fail(BROKEN_OFF))
  }

  #headOf({ statusCode = 0, statusMessage = '', rawHeaders }: IncomingMessage): ResponseHead | undefined {
    if (statusCode < 200 || statusCode > 599) return undefined
    return readResponseHead(statusCode, statusMessage, rawHeaders)
  }

  #answered(head: ResponseHead): void {
    // Content that ends with its connection may have been cut by a reset.
    if (this.#wasReset && head.contentLength === undefined && !head.isChunked) {
      this.#fail(BROKEN_OFF)
      return
    }
    const attempt = this.#detach()
    this.#close()
    attempt?.sink.responseEnd()
  }

  resume(): void {
    this.#answer?.resume()
  }

  abort(attempt: Attempt, reason: Error): void {
    if (attempt === this.#attempt) this.#fail(reason)
  }

  destroy(reason: Error): void {
    this.#service?.destroy()
    this.#fail(reason)
  }

  #fail(error: Error): void {
    const attempt = this.#detach()
    if (attempt === undefined) return
    this.#close()
    attempt.sink.attemptFailed(attempt, error)
  }

  #detach(): Attempt | undefined {
    const attempt = this.#attempt
    this.#attempt = undefined
    if (attempt !== undefined) attempt.place = undefined
    return attempt
  }

  #close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#opening.cancel()
    this.#request?.destroy()
    this.#service?.destroy()
    this.#host.closed(this)
  }
}

const BROKEN_OFF = new OriginError('connection_terminated', 'the answer to a handshake broke off')

/** Gives the library a connection that is open already. */
class OneConnection extends Agent {
  readonly #socket: Socket

  constructor(socket: Socket) {
    super({ keepAlive: false })
    this.#socket = socket
  }

  override createConnection(): Socket {
    return this.#socket
  }
}

/** The request as the library reads it: the admitted fields, and nothing else that the client sent. */
class HandshakeMessage {
  readonly method = 'GET'
  readonly httpVersionMajor = 1
  readonly url: string
  readonly headers: Record<string, string | string[]>
  readonly socket: Socket
  /** Set by the library's event while it sends the handshake. */
  request: ClientRequest | undefined

  constructor({ target, fields }: OriginRequest, socket: Socket) {
    this.url = target
    this.headers = { ...groupFields(fields), connection: 'Upgrade', upgrade: 'websocket' }
    this.socket = socket
  }
}
