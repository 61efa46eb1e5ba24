/** One client connection. Serves one request after another, and watches for clients that leave or fall silent. */

import { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import type { Caller, Peer } from '../callers/callers.ts'
import type { RefusalCode } from '../errors.ts'
import type { Exchange } from '../gateway/exchange.ts'
import { ClientResponse } from '../http/client-response.ts'
import { discardInput, resetNow, takeRequests } from '../http/node-internals.ts'
import { Arrival } from './arrival.ts'
import type { ClientCertificate } from './client-certificate.ts'
import type { Listener } from './server.ts'

/** The current request, as its connection sees it. One that is not admitted yet waits for no content, and has no time limits. */
export type CurrentRequest = Pick<Exchange, 'fail' | 'abandon'> & Partial<Pick<Exchange, 'awaitsClient' | 'check'>>

/** Where a connection came from, decided when it was accepted. */
export interface ConnectionOrigin {
  /** Its peer is on this machine. */
  readonly isLocal: boolean
  /** It came through a unix socket. */
  readonly isOnSocket?: boolean
  /** Path of the caller's own socket that it came through; undefined for the common address. */
  readonly callerSocket?: string | undefined
  readonly certificate?: ClientCertificate | undefined
  /** The TCP socket under TLS; otherwise the connection's own socket. */
  readonly carrier: Socket
}

export interface WaitLimits {
  readonly headersTimeoutMs: number
  readonly keepAliveTimeoutMs: number
  /** For a client that falls silent inside a request's content, or takes none of its response. */
  readonly idleTimeoutMs: number
}

/** What the connection waits for, how far that has come, and for how long it may stand still. */
interface Wait {
  readonly what: 'goodbye' | 'head' | 'next head' | 'content' | 'reader' | 'nothing'
  readonly progress: number
  readonly limitMs: number
}

const NOTHING: Wait = { what: 'nothing', progress: 0, limitMs: Number.POSITIVE_INFINITY }

/** A connection that we end stays open for at most this time: its input is read and dropped, and what was written is sent. */
const LINGER_MS = 2_000

export class ClientConnection implements Peer {
  readonly socket: Socket
  readonly callerSocket: string | undefined
  readonly certificate: ClientCertificate | undefined
  readonly origin: ConnectionOrigin
  readonly #listener: Listener
  /** The current request, until its response has been flushed. */
  #arrival: Arrival | undefined
  /** The same request while it waits for something, so that it can be ended. Set by the listener. */
  current: CurrentRequest | undefined
  /** Starts a request that arrived when all of the response before it had been written, but not all of it flushed. */
  #next: (() => void) | undefined
  /** One of its requests was. Set by the listener. */
  wasAdmitted = false
  /** Who sent the last request that was admitted; undefined without callers. Set by the listener. */
  caller: Caller | undefined
  /** Set by the exchange that opens it. */
  isTunnel = false
  /** The current request is the last one, or else the one whose head is arriving. */
  #isLastRequest = false
  /** No request is taken any more, and no tunnel stays. */
  #isFinishing = false
  /** Our side has ended. */
  #hasEnded = false
  /** Monotonic milliseconds. */
  idleSince = performance.now()
  /** The bytes that had been read by then. What comes later belongs to the next request. */
  #idleBytes = 0
  #wait = NOTHING
  /** Monotonic milliseconds: since then it has stood still. */
  #waitsSince = 0

  constructor(socket: Socket, listener: Listener, origin: ConnectionOrigin) {
    this.socket = socket
    this.#listener = listener
    this.origin = origin
    this.callerSocket = origin.callerSocket
    this.certificate = origin.certificate
    socket.on('error', () => undefined) // Node removes its own listener when a connection is upgraded
    socket.prependListener('end', () => this.#inputEnded()) // before Node ends our side
    socket.once('close', () => this.#closed())
    this.readRequests()
  }

  get isBusy(): boolean {
    return this.#arrival !== undefined || this.isTunnel
  }

  /** The names in the certificate of the client, as long as it is valid. */
  get certificateNames(): readonly string[] {
    return this.#hasExpired ? [] : (this.certificate?.names ?? [])
  }

  get #hasExpired(): boolean {
    return this.certificate !== undefined && this.certificate.expiresAt <= Date.now()
  }

  /** From the parser that Node has just attached. */
  readRequests(): void {
    takeRequests(
      this.socket,
      () => this.#takesRequest(),
      (message, keepsAlive) => this.inTurn(() => this.#start(message, !keepsAlive)),
    )
  }

  /**
   * Asked behind each head. A request that arrives while another is in flight is not answered: the connection closes behind
   * the response to the first (RFC 9112 §9.3.2 lets its client repeat the second). Nor is one behind a response that closes
   * the connection (RFC 9112 §9.6).
   */
  #takesRequest(): boolean {
    if (!this.isBusy) return true
    const { isComplete = false, keepsAlive = false } = this.#arrival?.response ?? {}
    if (isComplete && keepsAlive && !this.#isLastRequest && this.#next === undefined) return true
    this.#closeBehindResponse()
    return false
  }

  /** Takes a request that Node has given the connection away for: a WebSocket handshake, or CONNECT. No other can follow it. */
  takeLast(message: IncomingMessage, problem?: RefusalCode): void {
    this.inTurn(() => this.#start(message, true, problem))
  }

  /** Calls `start` now, or when the response before it has been flushed. */
  inTurn(start: () => void): void {
    if (this.isBusy) this.#next = start
    else start()
  }

  #start(message: IncomingMessage, isLast: boolean, problem?: RefusalCode): void {
    if (isLast) this.#isLastRequest = true
    const keepsAlive = !this.#isLastRequest && !this.#listener.isEnding && !this.#hasExpired
    this.#arrival = new Arrival(this, message, this.#newResponse(keepsAlive), this.#listener)
    this.#listener.begin(this.#arrival, problem)
  }

  #newResponse(keepsAlive: boolean): ClientResponse {
    return new ClientResponse(this.socket, keepsAlive, Math.floor(this.#listener.options.keepAliveTimeoutMs / 1_000))
  }

  /** The current request has ended, though its response may still be flushed. */
  requestEnded(response: ClientResponse): void {
    this.current = undefined
    if (this.isTunnel) {
      this.#arrival = undefined
      if (this.#isFinishing) this.finish()
    } else if (response.isFlushed) this.#goOn(response)
    else response.onFlushed = () => this.#goOn(response)
  }

  /** The last response has been handed to the system. */
  #goOn({ keepsAlive }: ClientResponse): void {
    const next = this.#next
    this.#next = undefined
    this.#arrival = undefined
    this.idleSince = performance.now()
    this.#idleBytes = this.socket.bytesRead
    if (this.socket.destroyed) return
    if (keepsAlive && next !== undefined) next()
    else if (!keepsAlive || this.#isLastRequest) this.#linger()
  }

  /** The parser has refused what arrived, or the head came too slowly. */
  inputBroken(problem: RefusalCode): void {
    // Clients open connections before they need them. One that was never used gets no answer and no log line.
    if (this.socket.bytesRead === 0 || !this.socket.writable) {
      this.socket.destroy()
      return
    }
    discardInput(this.socket)
    if (!this.isBusy) {
      this.takeLast(new IncomingMessage(this.socket), problem)
      return
    }
    this.#closeBehindResponse()
    this.#next = undefined // its content may be what is broken
    // Broken content breaks its request. Broken bytes behind a complete request do not: it may have been carried out.
    const isInContent = this.#arrival?.message.complete === false && !this.#arrival.response.isComplete
    if (isInContent) this.current?.fail({ code: problem })
  }

  /** A client that ends its side has left. What was written by then still goes out. */
  #inputEnded(): void {
    if (this.#arrival === undefined) return
    this.#next = undefined
    // If the client reads on after all, it must not take a broken response for a complete one.
    if (!this.#arrival.response.isWritten) resetNow(this.socket)
  }

  #closed(): void {
    this.#next = undefined
    this.current?.abandon('client_closed')
  }

  breakOff(): void {
    const { hasStarted = false, isFlushed = true } = this.#arrival?.response ?? {}
    this.current?.abandon('draining')
    // A client that reads until the end must not take a broken response for a complete one.
    if (hasStarted && !isFlushed) resetNow(this.socket)
    else this.socket.destroy()
  }

  /**
   * Takes no more requests. The current one finishes, with `Connection: close` if its head is still to be sent. A request whose
   * head has begun to arrive counts as current. A tunnel has no end to wait for, and closes.
   */
  finish(): void {
    this.#isFinishing = true
    if (this.isTunnel) {
      this.isTunnel = false
      this.#hasEnded = true
      this.socket.destroySoon()
    } else if (this.isBusy || this.socket.bytesRead > this.#idleBytes) this.#closeBehindResponse()
    else this.#linger()
  }

  /**
   * The proxy will stop soon: the response to the current request is the last one, if its head is still to be sent. A response
   * that waits for its turn to be written has its head already, and may have promised to keep the connection.
   */
  announceEnd(): void {
    const { response } = this.#arrival ?? {}
    if (response?.hasStarted === false && !response.isComplete) response.keepsAlive = false
  }

  #closeBehindResponse(): void {
    this.#isLastRequest = true
    this.announceEnd()
  }

  /** Ends our side, and throws away what the client still sends: a reset could cost it our answer (RFC 9112 §9.6). */
  #linger(): void {
    this.#hasEnded = true
    this.socket.end()
    discardInput(this.socket)
  }

  /** Ends what stands still for too long. Called several times within each limit. `now` is monotonic milliseconds. */
  check(now: number, limits: WaitLimits): void {
    this.current?.check?.(now)
    const wait = this.#awaited(limits)
    if (wait.what !== this.#wait.what || wait.progress !== this.#wait.progress) {
      this.#wait = wait
      this.#waitsSince = now
    }
    if (now - this.#waitsSince < wait.limitMs) return
    if (wait.what === 'head') {
      this.inputBroken('request_timeout')
      return
    }
    this.current?.fail({ code: 'request_timeout' })
    if (wait.what !== 'content') this.socket.destroy()
  }

  #awaited({ headersTimeoutMs, keepAliveTimeoutMs, idleTimeoutMs }: WaitLimits): Wait {
    const { bytesRead, bytesWritten, writableLength } = this.socket
    if (this.#hasEnded) return { what: 'goodbye', progress: 0, limitMs: LINGER_MS }
    if (this.isTunnel) return NOTHING
    // The system takes more bytes only when the client has emptied much of its buffers, in steps of a megabyte or so.
    const progress = bytesWritten - writableLength
    if (writableLength > 0) return { what: 'reader', progress, limitMs: idleTimeoutMs }
    // A client may be quiet inside its content while the service sends: it may be waiting for what it gets.
    if (this.current?.awaitsClient === true)
      return { what: 'content', progress: bytesRead + progress, limitMs: idleTimeoutMs }
    if (this.isBusy) return NOTHING
    // No byte of a head counts as progress, so that all of it has to come within its limit.
    const isHead = this.#idleBytes === 0 || bytesRead > this.#idleBytes
    if (isHead) return { what: 'head', progress: this.#idleBytes, limitMs: headersTimeoutMs }
    return { what: 'next head', progress: this.#idleBytes, limitMs: keepAliveTimeoutMs }
  }
}
