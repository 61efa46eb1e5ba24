/** One client connection. Reads one request after another, and watches for clients that leave or stand still. */

import type { Socket } from 'node:net'
import type { Caller } from '../callers/callers.ts'
import * as clock from '../clock.ts'
import { RESPONSE_NOT_READ } from '../errors.ts'
import { MalformedMessage } from '../http1/malformed.ts'
import { type RequestEvents, type RequestHead, RequestParser } from '../http1/request-parser.ts'
import { Pieces } from '../pieces.ts'
import { resetConnection } from '../reset.ts'
import type { ClientCertificate } from './client-certificate.ts'
import { ClientResponse, type LastWrites } from './client-response.ts'
import type { BrokenInput, Client, RequestHandler, RequestInProgress } from './request-handler.ts'

/** Where a connection came from, decided when it was accepted. */
export interface ConnectionSource {
  /** Its peer is on this machine. */
  readonly isLocal: boolean
  /** It came through a unix socket. */
  readonly isOnSocket?: boolean
  /** Path of the caller's own socket that it came through; undefined for the common address. */
  readonly callerSocket?: string | undefined
  readonly certificate?: ClientCertificate | undefined
  /** The TCP socket that carries a TLS connection; of others, the socket itself. */
  readonly carrier: Socket
}

/** What the connection sees of its listener. */
export interface ConnectionOwner {
  readonly options: WaitLimits & { readonly maxHeadSizeBytes: number }
  readonly handler: RequestHandler
  /** Each response closes its connection. */
  readonly isEnding: boolean
  readonly lastWrites: LastWrites
}

export interface WaitLimits {
  readonly headersTimeoutMs: number
  readonly keepAliveTimeoutMs: number
  /** For a client that falls silent inside a request's content, or takes none of its response. */
  readonly idleTimeoutMs: number
}

/** What the connection waits for, how far that has come, and for how long it may stand still. */
interface Wait {
  readonly what: 'lingering' | 'head' | 'next head' | 'content' | 'reader' | 'nothing'
  readonly progress: number
  readonly limitMs: number
}

const NOTHING: Wait = { what: 'nothing', progress: 0, limitMs: Number.POSITIVE_INFINITY }

/** A connection that we end stays open for at most this time: its input is read and dropped, and what was written is sent. */
const LINGER_MS = 2_000
/** Of a tunnel. A client that vanished without closing is found. */
const KEEP_ALIVE_PROBE_MS = 60_000
/** More is not read before its turn comes. */
const MAX_HELD_BYTES = 64 * 1024
/** More behind a request in flight is no mistake. */
const MAX_SURPLUS_BYTES = 64 * 1024

const CR = 0x0d
const LF = 0x0a

export class ClientConnection implements Client, RequestEvents {
  readonly socket: Socket
  readonly isLocal: boolean
  readonly isOnSocket: boolean
  readonly scheme: 'http' | 'https'
  readonly callerSocket: string | undefined
  readonly certificate: ClientCertificate | undefined
  wasAdmitted = false
  caller: Caller | undefined
  readonly #carrier: Socket
  readonly #owner: ConnectionOwner
  readonly #parser: RequestParser
  /** Until its response has been flushed. */
  #request: RequestInProgress | undefined
  /** To the current request, or else to the last one. */
  response: ClientResponse
  /** False while content of the current request is still to come. */
  #isRequestComplete = true
  /** The client may wait for a 100. */
  #mayContinue = false
  /** The current request is the last one, or else the one whose head is arriving. */
  #isLastRequest = false
  /** All further input is dropped. */
  #dropsInput = false
  /** Bytes whose turn has not come: of the next request, of a tunnel that may open, or behind a head that nobody has answered for. */
  #held: Pieces | undefined
  /** Nothing is read behind the head. */
  #holdsInput = false
  /** Behind the request in flight, of no use. */
  #surplusBytes = 0
  /** Its bytes belong to others. */
  isTunnel = false
  /** No request is taken any more, and no tunnel opens. */
  isFinishing = false
  /** Our side has ended. */
  #hasEnded = false
  /** Running time. */
  idleSince = clock.runningTime()
  /** A response has been sent. */
  #wasUsed = false
  #wait = NOTHING
  /** Running time: since then it has stood still. */
  #waitsSince = 0

  /** `socket` allows that one side ends before the other. */
  constructor(socket: Socket, owner: ConnectionOwner, source: ConnectionSource) {
    this.socket = socket
    this.#owner = owner
    this.isLocal = source.isLocal
    this.isOnSocket = source.isOnSocket === true
    this.scheme = source.carrier === socket ? 'http' : 'https'
    this.callerSocket = source.callerSocket
    this.certificate = source.certificate
    this.#carrier = source.carrier
    this.#parser = new RequestParser(this, owner.options.maxHeadSizeBytes)
    this.response = new ClientResponse(this)
    socket.on('error', () => undefined) // `close` follows
    socket.on('data', (bytes: Buffer) => this.#received(bytes))
    socket.on('end', () => this.#inputEnded())
    socket.on('drain', () => this.#request?.responseDrained())
    socket.once('close', () => this.#closed())
  }

  get isBusy(): boolean {
    return this.#request !== undefined || this.isTunnel
  }

  get awaitsProof(): boolean {
    return this.#request?.awaitsProof === true
  }

  get #holdsNextRequest(): boolean {
    return this.#held !== undefined && this.response.isComplete && !isBlank(this.#held.joined())
  }

  /** The names in the certificate of the client, as long as it is valid. */
  get certificateNames(): readonly string[] {
    return this.#hasExpired ? [] : (this.certificate?.names ?? [])
  }

  get certificateProblem(): string | undefined {
    return this.certificate?.problem
  }

  get #hasExpired(): boolean {
    return this.certificate !== undefined && this.certificate.expiresAt <= clock.day()
  }

  /** True if another request may follow the current one. Asked when its response begins. What is held by then came too early. */
  get mayGoOn(): boolean {
    const isInTurn = this.#isRequestComplete && this.#held === undefined
    return isInTurn && !this.#isLastRequest && !this.#owner.isEnding && !this.#hasExpired
  }

  get lastWrites(): LastWrites {
    return this.#owner.lastWrites
  }

  get keepAliveSeconds(): number {
    return Math.floor(this.#owner.options.keepAliveTimeoutMs / 1_000)
  }

  // ---- input

  #received(bytes: Buffer): void {
    if (this.#dropsInput) this.#drop(bytes)
    else this.#read(bytes)
  }

  #read(bytes: Buffer): void {
    const before = this.#request
    let at = 0
    try {
      while (at < bytes.length && !this.#dropsInput) {
        if (this.#holdsInput) {
          this.#hold(bytes.subarray(at))
          return
        }
        if (this.#request !== undefined && this.#isRequestComplete) {
          this.#takeEarly(bytes.subarray(at), this.#request === before)
          return
        }
        at = this.#parser.read(bytes, at, bytes.length)
        if (this.#request !== before) this.#request?.start()
      }
    } catch (error) {
      if (!(error instanceof MalformedMessage)) throw error
      this.#inputBroken({ code: error.refusalCode, reason: error.reason })
    }
  }

  requestHead(head: RequestHead): void {
    const { contentLength = 0, isChunked, keepsAlive } = head
    this.#isRequestComplete = contentLength === 0 && !isChunked
    this.#mayContinue = !this.#isRequestComplete
    this.#surplusBytes = 0
    if (!keepsAlive || head.method === 'CONNECT' || this.isFinishing) this.#isLastRequest = true
    this.response = new ClientResponse(this, head.minorVersion === 0)
    this.#request = this.#owner.handler.receive(head, this)
  }

  messageContent(bytes: Buffer, start: number, end: number): void {
    this.#mayContinue = false
    this.#request?.content(bytes, start, end)
  }

  messageEnd(): void {
    if (this.#isRequestComplete) return // it has no content
    this.#mayContinue = false
    this.#isRequestComplete = true
    this.#request?.contentEnded()
  }

  /**
   * Bytes behind a request that is still in progress. A request that comes when all of the response is here is served next. One
   * that comes earlier, or together with the request before it, is not answered: the connection closes behind the response
   * (RFC 9112 §9.3.2 lets the client repeat it).
   */
  #takeEarly(bytes: Buffer, cameInLaterRead: boolean): void {
    const { isComplete, keepsAlive } = this.response
    const mayBeNext = cameInLaterRead && isComplete && keepsAlive && !this.#isLastRequest
    if (this.#request?.mayBecomeTunnel === true || mayBeNext) {
      this.#hold(bytes)
      return
    }
    if (!isBlank(bytes)) this.#closeBehindResponse()
    this.#drop(bytes)
  }

  #hold(bytes: Buffer): void {
    this.#held ??= new Pieces()
    this.#held.add(bytes)
    if (this.#held.bytes >= MAX_HELD_BYTES) this.socket.pause()
  }

  /** Nobody reads without end for a client that sends without end. */
  #drop(bytes: Buffer): void {
    if (this.#request === undefined) return
    this.#surplusBytes += bytes.length
    if (this.#surplusBytes <= MAX_SURPLUS_BYTES) return
    this.#request.clientFailed({ code: 'request_invalid', reason: 'surplus' })
    this.reset()
  }

  holdInput(): void {
    this.#holdsInput = true
    this.#parser.suspend()
  }

  releaseInput(request: RequestInProgress): void {
    this.#holdsInput = false
    if (this.socket.destroyed) request.abandoned('client_closed')
    else {
      this.#request = request
      this.#readHeld()
      request.start()
    }
  }

  #readHeld(): void {
    const held = this.#held
    this.#held = undefined
    if (this.socket.destroyed) return
    this.socket.resume()
    if (held !== undefined) this.#received(held.joined())
  }

  /** What arrived is no request, or came too slowly. */
  #inputBroken(input: BrokenInput): void {
    this.#dropInput()
    // Clients open connections before they need them. One that was never used gets no answer and no log line.
    if (this.socket.bytesRead === 0 || !this.socket.writable) {
      this.socket.destroy()
      return
    }
    this.#isLastRequest = true
    if (this.#request === undefined) {
      this.response = new ClientResponse(this)
      const { method, target } = this.#parser
      this.#request = this.#owner.handler.refuse({ ...input, method, target }, this)
    } else if (!this.response.isComplete) this.#request.clientFailed(input)
  }

  /** A client that ends its side has left. A response that was written whole still goes out; any other is reset. */
  #inputEnded(): void {
    if (this.#request === undefined) {
      if (this.#parser.isBetweenMessages) this.socket.end()
      else this.#inputBroken({ code: 'request_invalid', reason: 'incomplete' })
      return
    }
    this.#isLastRequest = true
    this.#held = undefined
    // If the client reads on after all, it must not take a broken response for a complete one.
    if (!this.response.isWritten) this.reset()
  }

  #closed(): void {
    this.#held = undefined
    this.#abandon('client_closed')
  }

  #abandon(code: 'client_closed' | 'draining'): void {
    const request = this.#request
    this.#request = undefined
    request?.abandoned(code)
  }

  #dropInput(): void {
    this.#dropsInput = true
    this.#held = undefined
    this.socket.resume()
  }

  sendContinue(): void {
    if (this.#mayContinue) this.socket.write('HTTP/1.1 100 Continue\r\n\r\n', 'latin1')
    this.#mayContinue = false
  }

  pauseContent(): void {
    this.socket.pause()
  }

  resumeContent(): void {
    this.socket.resume()
  }

  startTunnel(): ReturnType<Client['startTunnel']> {
    if (this.isFinishing) return undefined
    const { socket } = this
    const carrier = this.#carrier
    const firstBytes = this.#held?.joined()
    this.#held = undefined
    this.#request = undefined
    this.isTunnel = true
    for (const event of ['data', 'end', 'drain'] as const) socket.removeAllListeners(event)
    socket.pause()
    // A tunnel has no time limit, and a client may vanish without a word.
    carrier.setKeepAlive(true, KEEP_ALIVE_PROBE_MS)
    return { socket, carrier, firstBytes }
  }

  // ---- the end of a request, and of the connection

  /** The system has taken all of the response. */
  responseFlushed(): void {
    const request = this.#request
    this.#request = undefined
    request?.responseFlushed()
    this.idleSince = clock.runningTime()
    this.#wasUsed = true
    if (this.socket.destroyed) return
    if (!this.response.keepsAlive || this.#isLastRequest) {
      this.#linger()
      return
    }
    this.#readHeld()
  }

  /** Ends our side, and drops what the client still sends: a reset could cost it our answer (RFC 9112 §9.6). */
  #linger(): void {
    this.#hasEnded = true
    this.socket.end()
    this.#dropInput()
  }

  #closeBehindResponse(): void {
    this.#isLastRequest = true
    if (this.#isRequestComplete && this.#request !== undefined) this.#dropInput()
  }

  /**
   * Ends the connection with a reset, and no FIN before it: a client that reads until the end of the connection would take a
   * broken response for a complete one. A unix socket has no reset, and closes.
   */
  reset(): void {
    if (this.isOnSocket) this.socket.destroy()
    else resetConnection(this.socket, this.#carrier)
  }

  breakOff(): void {
    const { hasStarted, isFlushed } = this.response
    const isBroken = this.#request !== undefined && hasStarted && !isFlushed
    this.isFinishing = true
    this.#abandon('draining')
    // A client that reads until the end must not take a broken response for a complete one.
    if (isBroken) this.reset()
    else this.#destroy()
  }

  /** Bytes that wait for the client are dropped with a reset. */
  #destroy(): void {
    if (this.socket.writableLength > 0) this.reset()
    else this.socket.destroy()
  }

  /**
   * Takes no more requests. The current one finishes, with `Connection: close` if its head is still to be sent. A request whose
   * head has begun to arrive counts as current. A tunnel has no end to wait for, and closes.
   */
  finish(): void {
    this.isFinishing = true
    if (this.isTunnel) {
      this.isTunnel = false // from here on it lingers: it is not busy, and `check` ends it
      this.#hasEnded = true
      this.socket.destroySoon()
      return
    }
    if (this.#request === undefined && this.#parser.isBetweenMessages) {
      this.#linger()
      return
    }
    // The response before it has promised that the next request will be answered. That is the last one then.
    if (this.#holdsNextRequest) return
    this.#closeBehindResponse()
  }

  /** Too many connections are open. */
  makeRoom(): void {
    this.#request?.clientFailed({ code: 'overloaded', limit: 'listen.maxConnections' })
    this.socket.destroy()
  }

  /** Ends what stands still for too long. Called several times within each limit. `now` is running time. */
  check(now: number): void {
    this.#probe()
    const wait = this.#awaited(this.#owner.options)
    if (wait.what !== this.#wait.what || wait.progress !== this.#wait.progress) {
      this.#wait = wait
      this.#waitsSince = now
    }
    if (now - this.#waitsSince < wait.limitMs) return
    if (wait.what === 'head') {
      this.#inputBroken({ code: 'request_timeout' })
      return
    }
    const reason = wait.what === 'reader' ? RESPONSE_NOT_READ : undefined
    this.#request?.clientFailed({ code: 'request_timeout', reason })
    if (wait.what !== 'content') this.#destroy()
  }

  /** While nothing is read, a reset shows only when something is written, and TLS hides it. A tunnel sees to it itself. */
  #probe(): void {
    const { socket } = this
    if (this.#request !== undefined && socket.isPaused() && socket.writableLength === 0) this.#carrier.write('')
  }

  #awaited({ headersTimeoutMs, keepAliveTimeoutMs, idleTimeoutMs }: WaitLimits): Wait {
    const { bytesRead, bytesWritten, writableLength } = this.socket
    if (this.#hasEnded) return { what: 'lingering', progress: 0, limitMs: LINGER_MS }
    if (this.isTunnel) return NOTHING
    // The system takes more bytes only when the client has emptied much of its buffers, in steps of a megabyte or so.
    const progress = bytesWritten - writableLength
    if (writableLength > 0) return { what: 'reader', progress, limitMs: idleTimeoutMs }
    // A client may be quiet inside its content while the service sends: it may be waiting for what it gets.
    if (this.#request?.awaitsClient === true)
      return { what: 'content', progress: bytesRead + progress, limitMs: idleTimeoutMs }
    if (this.#request !== undefined) return NOTHING
    // No byte of a head counts as progress, so that all of it has to come within its limit.
    if (this.#wasUsed && this.#parser.isBetweenMessages)
      return { what: 'next head', progress: this.idleSince, limitMs: keepAliveTimeoutMs }
    return { what: 'head', progress: this.idleSince, limitMs: headersTimeoutMs }
  }
}

/** Empty lines, which some clients send behind their content, begin no request. */
function isBlank(bytes: Buffer): boolean {
  return bytes.every((octet) => octet === CR || octet === LF)
}
