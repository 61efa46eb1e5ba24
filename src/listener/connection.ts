/** One client connection. Serves one request after another, and watches for clients that leave or fall silent. */

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { CallerUsage } from '../callers/callers.ts'
import type { Failure } from '../errors.ts'
import type { ExchangeOwner } from '../gateway/exchange.ts'
import { discardInput, lastResponse, makeStoppable, resetNow } from '../http/node-internals.ts'
import type { ClientCertificate } from './tls.ts'

/** The exchange of the current request, as its connection sees it. */
export interface Carried {
  readonly awaitsClient: boolean
  fail(failure: Failure): void
  clientGone(): void
  /** The proxy stops. */
  stopped(): void
}

export interface ConnectionOwner {
  /** Starts a request. Calls `carry` on the connection if the request is still under way afterwards. */
  begin(connection: ClientConnection, message: IncomingMessage, response: ServerResponse): void
  exchangeEnded(): void
}

/** Input is read and dropped for this time after our last byte. An earlier reset could cost the client our answer. */
const LINGER_MS = 2_000

/** What is known of a connection before its first request. */
export interface ConnectionFacts {
  /** True for a client on another machine, if `listen.allowRemote` is off. All its requests are refused. */
  readonly isForeign: boolean
  /** Path of the caller's own socket that it came through; undefined for the common address. */
  readonly callerSocket: string | undefined
  /** The verified certificate of the client, or why it was not verified. */
  readonly certificate?: ClientCertificate | string | undefined
}

const NO_NAMES: readonly string[] = []

export class ClientConnection implements ExchangeOwner {
  readonly socket: Socket
  readonly #owner: ConnectionOwner
  #message: IncomingMessage | undefined
  #response: ServerResponse | undefined
  #carried: Carried | undefined
  /** Starts a request that arrived when all of the response before it had been written, but not all of it flushed. */
  #next: (() => void) | undefined
  #lingersUntil = Number.POSITIVE_INFINITY
  /** Finite once the request whose head is arriving is the last one: when that head has to be complete. */
  #lastHeadUntil = Number.POSITIVE_INFINITY
  #readBytes = 0
  #readAt = 0
  #takenBytes = 0
  #takenAt = 0
  isBusy = false
  isTunnel = false
  readonly isForeign: boolean
  readonly callerSocket: string | undefined
  readonly #certificate: ClientCertificate | undefined
  /** Why the certificate of the client does not count. */
  readonly certificateProblem: string | undefined
  /** Counts the current request for its caller. */
  #usage: CallerUsage | undefined
  /** No further request is taken. */
  isClosing = false
  /** Monotonic milliseconds. */
  idleSince = performance.now()
  /** The bytes that had been read by then. What comes later belongs to the next request. */
  #idleBytes = 0

  constructor(socket: Socket, owner: ConnectionOwner, { isForeign, callerSocket, certificate }: ConnectionFacts) {
    this.socket = socket
    this.#owner = owner
    this.isForeign = isForeign
    this.callerSocket = callerSocket
    if (typeof certificate === 'string') this.certificateProblem = certificate
    else this.#certificate = certificate
    socket.on('error', () => undefined) // Node removes its own listener when a connection is upgraded
    socket.prependListener('end', () => this.#inputEnded()) // before Node ends our side
    socket.once('close', () => this.#closed())
    // Node destroys a connection as soon as its last response is flushed. If content is still arriving then, the client
    // gets a reset and may lose the response. We end our side and read on for a while instead (RFC 9112 §9.6).
    socket.destroySoon = () => this.linger()
    this.parserAttached()
  }

  /** To be called whenever Node has given this connection a parser. */
  parserAttached(): void {
    makeStoppable(this.socket, () => this.#takesRequest())
  }

  /**
   * Asked behind each head. A request that arrives while another is in flight is not answered: the connection closes behind
   * the response to the first (RFC 9112 §9.3.2 lets its client repeat the second).
   */
  #takesRequest(): boolean {
    if (this.isClosing) return false
    if (!this.isBusy) return true
    if (this.#response?.writableEnded === true && this.#next === undefined) return true
    this.#closeBehindResponse()
    return false
  }

  /** Takes the next request: starts it now, or when the response before it has been flushed. */
  take(message: IncomingMessage, response: ServerResponse): void {
    this.#inTurn(() => {
      if (this.isClosing || this.#lastHeadUntil !== Number.POSITIVE_INFINITY) response.shouldKeepAlive = false
      this.#start(message, response)
    })
  }

  /** Calls `start` in the turn of a request after which the connection leaves HTTP. */
  leaveHttp(start: () => void): void {
    this.#inTurn(start)
  }

  #inTurn(start: () => void): void {
    if (this.isBusy) {
      this.#next = start
      return
    }
    this.isBusy = true
    start()
  }

  /** A WebSocket handshake. No request can follow it on its connection. */
  takeHandshake(message: IncomingMessage): void {
    this.leaveHttp(() => {
      this.isClosing = true
      const response = lastResponse(message, this.socket)
      response.once('finish', () => this.linger())
      this.#start(message, response)
    })
  }

  /** Counts the current request for its caller, in place of the one before. */
  countFor(usage: CallerUsage | undefined): void {
    if (this.#usage !== undefined) this.#usage.inFlight--
    if (usage !== undefined) usage.inFlight++
    this.#usage = usage
  }

  tunnelOpened(): void {
    this.isTunnel = true
  }

  get hasCertificate(): boolean {
    return this.#certificate !== undefined
  }

  get #hasExpired(): boolean {
    return this.#certificate !== undefined && this.#certificate.expiresAt <= Date.now()
  }

  /** The names in the certificate of the client, as long as it is valid. */
  get certificateNames(): readonly string[] {
    return this.#certificate === undefined || this.#hasExpired ? NO_NAMES : this.#certificate.names
  }

  #start(message: IncomingMessage, response: ServerResponse): void {
    if (this.#hasExpired) response.shouldKeepAlive = false
    this.#message = message
    this.#response = response
    this.#owner.begin(this, message, response)
  }

  /** Takes the exchange that is under way. Not called for a request that was answered at once. */
  carry(carried: Carried): void {
    this.#carried = carried
  }

  exchangeEnded(): void {
    this.countFor(undefined)
    this.#carried = undefined
    this.#message = undefined
    this.#owner.exchangeEnded()
    const response = this.#response
    if (this.isTunnel) this.#response = undefined
    // Until Node has taken the socket from this response, the next one has none to be written to.
    else if (response === undefined || response.socket === null) this.#goOn()
    else response.once('finish', () => this.#goOn())
  }

  /** The last response has been handed to the system. */
  #goOn(): void {
    this.#response = undefined
    this.idleSince = performance.now()
    this.#idleBytes = this.socket.bytesRead
    if (this.socket.destroyed) return
    const next = this.#next
    this.#next = undefined
    if (next !== undefined) {
      next()
      return
    }
    this.isBusy = false
    if (this.isClosing) this.linger()
  }

  /** For a connection that returns to HTTP: `feed` gives it a parser and what was read already. */
  returnToHttp(feed: () => void): void {
    this.isBusy = false
    feed()
    this.socket.resume()
  }

  /** The parser was stopped, because no request is taken any more. */
  inputStopped(): void {
    discardInput(this.socket)
  }

  /** The parser has refused what arrived, or the head was too slow. */
  inputBroken(failure: Failure): 'answered' | 'unanswered' {
    const isSettled = this.isClosing || this.isBusy
    discardInput(this.socket)
    this.#closeBehindResponse()
    // Broken content breaks its request. Broken bytes behind a complete request do not: it may have been carried out.
    const isInContent = this.#message?.complete === false && this.#response?.writableEnded === false
    if (isInContent) this.#carried?.fail(failure)
    return isSettled ? 'answered' : 'unanswered'
  }

  /** A client that ends its side has left. What was written by then still goes out. */
  #inputEnded(): void {
    if (this.isTunnel || !this.isBusy) return
    this.isClosing = true
    this.#next = undefined
    if (this.#response === undefined || this.#response.writableEnded) return
    this.#carried?.clientGone()
    resetNow(this.socket) // if the client reads on after all, it must not take a broken response for a complete one
  }

  #closed(): void {
    this.isClosing = true
    this.#next = undefined
    this.#carried?.clientGone()
  }

  /** Closes it at once. */
  breakOff(): void {
    this.#carried?.stopped()
    this.socket.destroy()
  }

  /**
   * Takes no more requests. The current one finishes, with `Connection: close` if its head is still to be sent. A request whose
   * head has begun to arrive counts as current if the head is complete by `headUntil` (monotonic milliseconds).
   */
  finish(headUntil: number): void {
    if (this.isTunnel) this.isClosing = true
    else if (this.isBusy) this.#closeBehindResponse()
    else if (!this.isClosing && this.socket.bytesRead > this.#idleBytes) this.#lastHeadUntil = headUntil
    else this.linger()
  }

  /** The proxy will stop soon: the response to the current request is the last one, if its head is still to be sent. */
  announceEnd(): void {
    if (this.#response?.headersSent === false) this.#response.shouldKeepAlive = false
  }

  #closeBehindResponse(): void {
    this.isClosing = true
    this.announceEnd()
  }

  /** Ends our side, and throws away what the client still sends. */
  linger(): void {
    this.isClosing = true
    if (this.#lingersUntil !== Number.POSITIVE_INFINITY) return
    this.#lingersUntil = performance.now() + LINGER_MS
    this.socket.end()
    discardInput(this.socket)
  }

  /** Ends what has been silent for too long. Called several times within each limit. `now` is monotonic milliseconds. */
  check(now: number, idleTimeoutMs: number, keepAliveTimeoutMs: number): void {
    if (now >= this.#lingersUntil) {
      this.socket.destroy()
      return
    }
    if (this.isTunnel) return
    if (!this.isBusy && this.socket.writableLength === 0) {
      this.#checkIdle(now, keepAliveTimeoutMs)
      return
    }
    if (this.#carried?.awaitsClient === true) this.#checkReading(this.#carried, now, idleTimeoutMs)
    else this.#readAt = now
    this.#checkWriting(now, idleTimeoutMs)
  }

  #checkIdle(now: number, keepAliveTimeoutMs: number): void {
    const { bytesRead } = this.socket
    if (now >= this.#lastHeadUntil || this.#hasExpired) this.linger()
    else if (bytesRead !== this.#readBytes) {
      // Either the beginning of the next request, which has a time limit of its own, or all of the last one.
      this.#readBytes = bytesRead
      if (now - this.idleSince >= keepAliveTimeoutMs) this.idleSince = now
    } else if (now - this.idleSince >= keepAliveTimeoutMs) this.socket.destroy()
  }

  #checkReading(carried: Carried, now: number, idleTimeoutMs: number): void {
    const { bytesRead } = this.socket
    if (bytesRead !== this.#readBytes) {
      this.#readBytes = bytesRead
      this.#readAt = now
    } else if (now - this.#readAt >= idleTimeoutMs) carried.fail({ code: 'request_timeout' })
  }

  /** The system takes more bytes only when the client has emptied much of its buffers, in steps of a megabyte or so. */
  #checkWriting(now: number, idleTimeoutMs: number): void {
    const { bytesWritten, writableLength } = this.socket
    const takenBytes = bytesWritten - writableLength
    if (writableLength === 0 || takenBytes !== this.#takenBytes) {
      this.#takenBytes = takenBytes
      this.#takenAt = now
    } else if (now - this.#takenAt >= idleTimeoutMs) {
      this.#carried?.fail({ code: 'request_timeout' })
      this.socket.destroy()
    }
  }
}
