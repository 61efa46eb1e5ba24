/** One client connection. Serves one request after another, and watches for clients that leave or fall silent. */

import { IncomingMessage, type Server } from 'node:http'
import type { Socket } from 'node:net'
import type { Server as TlsServer } from 'node:tls'
import type { Peer } from '../callers/callers.ts'
import type { Failure, RefusalCode } from '../errors.ts'
import { ClientResponse } from '../http/client-response.ts'
import { ignoreOffer } from '../http/node-20.ts'
import { discardInput, resetNow, takeRequests } from '../http/node-internals.ts'
import type { AbandonCode } from '../http/request-record.ts'
import { isLocalPeer } from './bind.ts'
import type { Listener } from './server.ts'
import type { ClientCertificate } from './tls.ts'

/** The current request, as its connection sees it. */
export interface CurrentRequest {
  /** True while it needs more content of the client, which sends none. */
  readonly awaitsClient?: boolean
  /** Looks at its time limits. `now` is monotonic milliseconds. */
  check?(now: number): void
  fail(failure: Failure): void
  /** Ends it without an answer. */
  abandon(code: AbandonCode): void
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

/** Input is read and dropped for this time after our last byte. */
const LINGER_MS = 2_000

export class ClientConnection implements Peer {
  readonly socket: Socket
  readonly callerSocket: string | undefined
  readonly certificate: ClientCertificate | undefined
  readonly isLocal: boolean
  readonly #listener: Listener
  #message: IncomingMessage | undefined
  #response: ClientResponse | undefined
  /** Set by the listener. Undefined for a request that was answered at once. */
  current: CurrentRequest | undefined
  /** Starts a request that arrived when all of the response before it had been written, but not all of it flushed. */
  #next: (() => void) | undefined
  isBusy = false
  /** Set by the exchange that opens it. */
  isTunnel = false
  // On its way to the end, a connection can pass three steps, in this order. Each may be the first.
  /** The request whose head is arriving is the last one. */
  #isLast = false
  /** No further request is taken. */
  isClosing = false
  /** Our side has ended. */
  #isLingering = false
  /** Monotonic milliseconds. */
  idleSince = performance.now()
  /** The bytes that had been read by then. What comes later belongs to the next request. */
  #idleBytes = 0
  #wait = NOTHING
  /** Monotonic milliseconds: since then it has stood still. */
  #waitsSince = 0

  /** `callerSocket`: path of the caller's own socket that it came through; undefined for the common address. */
  constructor(socket: Socket, listener: Listener, callerSocket?: string, certificate?: ClientCertificate) {
    this.socket = socket
    this.#listener = listener
    this.callerSocket = callerSocket
    this.certificate = certificate
    this.isLocal = isLocalPeer(socket)
    socket.on('error', () => undefined) // Node removes its own listener when a connection is upgraded
    socket.prependListener('end', () => this.#inputEnded()) // before Node ends our side
    socket.once('close', () => this.#closed())
    this.#parserAttached()
  }

  /** The names in the certificate of the client, as long as it is valid. */
  get certificateNames(): readonly string[] {
    return this.#hasExpired ? [] : (this.certificate?.names ?? [])
  }

  get #hasExpired(): boolean {
    return this.certificate !== undefined && this.certificate.expiresAt <= Date.now()
  }

  #parserAttached(): void {
    takeRequests(
      this.socket,
      () => this.#takesRequest(),
      (message, keepsAlive) => this.#inTurn(() => this.#start(message, keepsAlive && !this.isClosing && !this.#isLast)),
    )
  }

  /**
   * Asked behind each head. A request that arrives while another is in flight is not answered: the connection closes behind
   * the response to the first (RFC 9112 §9.3.2 lets its client repeat the second). Nor is one behind a response that closes
   * the connection (RFC 9112 §9.6).
   */
  #takesRequest(): boolean {
    if (this.isClosing) return false
    if (!this.isBusy) return true
    const { isEnded = false, keepsAlive = false } = this.#response ?? {}
    if (isEnded && keepsAlive && this.#next === undefined) return true
    this.#closeBehindResponse()
    return false
  }

  /** Takes a request that Node has given the connection away for: a WebSocket handshake, or CONNECT. No other can follow it. */
  takeLast(message: IncomingMessage, problem?: RefusalCode): void {
    this.#inTurn(() => {
      this.isClosing = true
      this.#start(message, false, problem)
    })
  }

  /** Starts it now, or when the response before it has been flushed. */
  #inTurn(start: () => void): void {
    if (this.isBusy) {
      this.#next = start
      return
    }
    this.isBusy = true
    start()
  }

  #start(message: IncomingMessage, keepsAlive: boolean, problem?: RefusalCode): void {
    const response = new ClientResponse(this.socket, keepsAlive && !this.#hasExpired)
    this.#message = message
    this.#response = response
    this.#listener.begin(this, message, response, problem)
  }

  /** The current request has ended, though its response may still be flushed. */
  requestEnded(): void {
    this.current = undefined
    this.#message = undefined
    const response = this.#response
    if (this.isTunnel) this.#response = undefined
    else if (response?.isFlushed !== false) this.#goOn()
    else response.onFlushed = () => this.#goOn()
  }

  /** The last response has been handed to the system. */
  #goOn(): void {
    if (this.#response?.keepsAlive === false) this.isClosing = true
    this.#response = undefined
    this.idleSince = performance.now()
    this.#idleBytes = this.socket.bytesRead
    if (this.socket.destroyed) return
    this.isBusy = false
    const next = this.#next
    this.#next = undefined
    if (next !== undefined) this.#inTurn(next)
    else if (this.isClosing) this.linger()
  }

  /** For a request that offers a protocol other than WebSocket: it is parsed again, without the offer. */
  ignoreOffer(server: Server | TlsServer, message: IncomingMessage, firstBytes: Buffer): void {
    this.#inTurn(() => {
      this.isBusy = false
      this.#isLast = this.isClosing
      this.isClosing = false
      ignoreOffer(server, this.socket, message, firstBytes, () => this.#parserAttached())
    })
  }

  /** The parser has refused what arrived, or the head came too slowly. */
  inputBroken(problem: RefusalCode): void {
    // Clients open connections before they need them. One that was never used gets no answer and no log line.
    if (this.socket.bytesRead === 0 || !this.socket.writable) {
      this.socket.destroy()
      return
    }
    discardInput(this.socket)
    if (!this.isBusy && !this.isClosing) {
      this.takeLast(new IncomingMessage(this.socket), problem)
      return
    }
    this.#closeBehindResponse()
    // Broken content breaks its request. Broken bytes behind a complete request do not: it may have been carried out.
    const isInContent = this.#message?.complete === false && this.#response?.isEnded === false
    if (isInContent) this.current?.fail({ code: problem })
  }

  /** A client that ends its side has left. What was written by then still goes out. */
  #inputEnded(): void {
    if (this.isTunnel || !this.isBusy) return
    this.isClosing = true
    this.#next = undefined
    if (this.#response === undefined || this.#response.isEnded) return
    resetNow(this.socket) // if the client reads on after all, it must not take a broken response for a complete one
  }

  #closed(): void {
    this.isClosing = true
    this.#next = undefined
    this.current?.abandon('client_closed')
  }

  breakOff(): void {
    const { hasStarted = false, isFlushed = true } = this.#response ?? {}
    this.current?.abandon('draining')
    // A client that reads until the end must not take a broken response for a complete one.
    if (hasStarted && !isFlushed) resetNow(this.socket)
    else this.socket.destroy()
  }

  /**
   * Takes no more requests. The current one finishes, with `Connection: close` if its head is still to be sent. A request whose
   * head has begun to arrive counts as current.
   */
  finish(): void {
    if (this.isTunnel) this.isClosing = true
    else if (this.isBusy) this.#closeBehindResponse()
    else if (!this.isClosing && this.socket.bytesRead > this.#idleBytes) this.#isLast = true
    else this.linger()
  }

  /** The proxy will stop soon: the response to the current request is the last one, if its head is still to be sent. */
  announceEnd(): void {
    if (this.#response?.hasStarted === false) this.#response.keepsAlive = false
  }

  #closeBehindResponse(): void {
    this.isClosing = true
    this.announceEnd()
  }

  /** Ends our side, and throws away what the client still sends: a reset could cost it our answer (RFC 9112 §9.6). */
  linger(): void {
    this.isClosing = true
    this.#isLingering = true
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
    if (this.#isLingering) return { what: 'goodbye', progress: 0, limitMs: LINGER_MS }
    if (this.isTunnel) return NOTHING
    // The system takes more bytes only when the client has emptied much of its buffers, in steps of a megabyte or so.
    const progress = bytesWritten - writableLength
    if (writableLength > 0) return { what: 'reader', progress, limitMs: idleTimeoutMs }
    if (this.current?.awaitsClient === true) return { what: 'content', progress: bytesRead, limitMs: idleTimeoutMs }
    if (this.isBusy) return NOTHING
    // No byte of a head counts as progress, so that all of it has to come within its limit.
    const isHead = this.#idleBytes === 0 || bytesRead > this.#idleBytes
    if (isHead) return { what: 'head', progress: this.#idleBytes, limitMs: headersTimeoutMs }
    return { what: 'next head', progress: this.#idleBytes, limitMs: keepAliveTimeoutMs }
  }
}
