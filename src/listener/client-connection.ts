/**
 * One client connection. Reads one request after another, and watches for clients that leave or stand still.
 *
 * | state | what may come | what follows |
 * |---|---|---|
 * | `first head`, `next head`: none, or a part, of a head has come | the head; what is no request, or too slow | `serving` |
 * | | an end of the client, or of the program, before a head | `lingering` |
 * | `serving`: one request, until all of its response is flushed | the flush, if the connection is kept | `next head` |
 * | | the flush, if it is not | `lingering` |
 * | | a 101 | `tunnel` |
 * | `tunnel`: others read and write | an end of the program | `lingering` |
 * | `lingering`: our side has ended, and input is dropped | two seconds | `closed` |
 * | any | the socket closes, or is broken off | `closed` |
 */

import assert from 'node:assert/strict'
import type { Socket } from 'node:net'
import type { Caller } from '../callers/callers.ts'
import * as clock from '../clock.ts'
import { RESPONSE_NOT_READ } from '../errors.ts'
import { MalformedMessage } from '../http1/malformed.ts'
import { type RequestEvents, type RequestHead, RequestParser } from '../http1/request-parser.ts'
import { kept, pushRead, readAccepted, resetConnection } from '../node-internals.ts'
import { Pieces } from '../pieces.ts'
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
  /** Of a fault that no request knows of. */
  programFailed(fault: unknown): void
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

/** One request, until the system has taken all of its response. */
class Serving {
  readonly name = 'serving'
  /** Undefined while the handler looks at the head. */
  request: RequestInProgress | undefined
  /** What becomes of the bytes behind the head. `held`: nobody has answered for it yet. */
  input: 'read' | 'held' | 'dropped' = 'read'
  /** False while content is still to come. */
  isComplete: boolean
  /** The client may wait for a 100. */
  mayContinue: boolean
  /** No other request follows. */
  isLast: boolean
  /** Bytes whose turn has not come: of the next request, of a tunnel that may open, or behind a head that nobody has answered for. */
  held: Pieces | undefined
  /** Behind the request, of no use. */
  surplusBytes = 0

  constructor(isComplete: boolean, isLast: boolean) {
    this.isComplete = isComplete
    this.mayContinue = !isComplete
    this.isLast = isLast
  }
}

type State = Serving | { readonly name: 'first head' | 'next head' | 'tunnel' | 'lingering' | 'closed' }

const FIRST_HEAD: State = { name: 'first head' }
const NEXT_HEAD: State = { name: 'next head' }
const TUNNEL: State = { name: 'tunnel' }
const LINGERING: State = { name: 'lingering' }
const CLOSED: State = { name: 'closed' }

/** Those that each may follow. */
const FORMER: Readonly<Record<State['name'], readonly State['name'][]>> = {
  'first head': [],
  'next head': ['serving'],
  serving: ['next head', 'first head'],
  tunnel: ['serving'],
  lingering: ['serving', 'next head', 'first head', 'tunnel'],
  closed: ['lingering', 'tunnel', 'serving', 'next head', 'first head'],
}

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
  #state = FIRST_HEAD
  /** To the current request, or else to the last one. */
  response: ClientResponse
  /** It was given away as a tunnel. */
  #isStream = false
  /** No request is taken any more, and no tunnel opens. */
  isFinishing = false
  /** Running time. */
  idleSince = clock.runningTime()
  #wait = NOTHING
  /** Running time: since then it has stood still. */
  #waitsSince = 0

  /**
   * `accepted` allows that one side ends before the other, and nothing of it has been read. Unless it is under TLS, another
   * `socket` takes its place.
   */
  constructor(accepted: Socket, owner: ConnectionOwner, source: ConnectionSource) {
    const isSecure = source.carrier !== accepted
    const reader = (bytes: Buffer, length: number) => this.#received(bytes, length)
    const socket = isSecure ? accepted : readAccepted(accepted, reader)
    if (isSecure) socket.on('data', (bytes: Buffer) => this.#received(bytes, bytes.length))
    this.socket = socket
    this.#owner = owner
    this.isLocal = source.isLocal
    this.isOnSocket = source.isOnSocket === true
    this.scheme = isSecure ? 'https' : 'http'
    this.callerSocket = source.callerSocket
    this.certificate = source.certificate
    this.#carrier = isSecure ? source.carrier : socket
    this.#parser = new RequestParser(this, owner.options.maxHeadSizeBytes)
    this.response = new ClientResponse(this)
    socket.on('error', () => undefined) // `close` follows
    socket.on('end', () => this.#inputEnded())
    socket.on('drain', () => this.#serving?.request?.responseDrained())
    socket.once('close', () => this.#close('client_closed'))
  }

  #enter(state: State): void {
    assert(FORMER[state.name].includes(this.#state.name))
    this.#state = state
  }

  get #serving(): Serving | undefined {
    return this.#state.name === 'serving' ? this.#state : undefined
  }

  get isBusy(): boolean {
    return this.#state.name === 'serving' || this.#state.name === 'tunnel'
  }

  get awaitsProof(): boolean {
    return this.#serving?.request?.awaitsProof === true
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
    const serving = this.#serving
    const isInTurn = serving?.isComplete === true && serving.held === undefined
    return isInTurn && !serving.isLast && !this.#owner.isEnding && !this.#hasExpired
  }

  get lastWrites(): LastWrites {
    return this.#owner.lastWrites
  }

  get keepAliveSeconds(): number {
    return Math.floor(this.#owner.options.keepAliveTimeoutMs / 1_000)
  }

  // ---- input

  #received(bytes: Buffer, length: number): boolean {
    if (this.#isStream) return pushRead(this.socket, kept(bytes, 0, length))
    this.#read(bytes, length)
    return true
  }

  #read(bytes: Buffer, length: number): void {
    const before = this.#state
    let at = 0
    try {
      while (at < length) {
        const state = this.#state
        if (state.name === 'lingering' || state.name === 'closed') return
        if (state.name === 'serving' && (state.isComplete || state.input !== 'read')) {
          this.#receivedBehind(state, kept(bytes, at, length), state === before)
          return
        }
        at = this.#parser.read(bytes, at, length)
        if (this.#state !== before) this.#serving?.request?.start()
      }
    } catch (error) {
      if (error instanceof MalformedMessage) this.#inputBroken({ code: error.refusalCode, reason: error.reason })
      else this.#failed(error)
    }
  }

  requestHead(head: RequestHead): void {
    const { contentLength = 0, isChunked, keepsAlive } = head
    const isLast = !keepsAlive || head.method === 'CONNECT' || this.isFinishing
    const serving = new Serving(contentLength === 0 && !isChunked, isLast)
    this.#enter(serving)
    this.response = new ClientResponse(this, head.minorVersion === 0)
    serving.request = this.#owner.handler.receive(head, this)
  }

  messageContent(bytes: Buffer, start: number, end: number): void {
    const serving = this.#serving
    if (serving === undefined) return
    serving.mayContinue = false
    serving.request?.content(kept(bytes, start, end))
  }

  messageEnd(): void {
    const serving = this.#serving
    if (serving === undefined || serving.isComplete) return // it has no content
    serving.mayContinue = false
    serving.isComplete = true
    serving.request?.contentEnded()
  }

  /**
   * Bytes behind a request that is still in progress. A request that comes when we have all of the response, though it is not all
   * sent, is served next. One that comes earlier, or together with the request before it, is not answered: the connection closes
   * behind the response (RFC 9112 §9.3.2 lets the client repeat it).
   */
  #receivedBehind(serving: Serving, bytes: Buffer, cameInLaterRead: boolean): void {
    const { request, input, isLast } = serving
    const mayBeNext = cameInLaterRead && this.response.isComplete && this.response.keepsAlive && !isLast
    if (input === 'held' || (input === 'read' && (mayBeNext || request?.mayBecomeTunnel === true))) {
      serving.held ??= new Pieces()
      serving.held.add(bytes)
      if (serving.held.bytes >= MAX_HELD_BYTES) this.socket.pause()
      return
    }
    if (input === 'read' && !isBlank(bytes)) this.#closeBehindResponse(serving)
    // Nobody reads without end for a client that sends without end.
    serving.surplusBytes += bytes.length
    if (serving.surplusBytes <= MAX_SURPLUS_BYTES) return
    request?.clientFailed({ code: 'request_invalid', reason: 'surplus' })
    this.reset()
  }

  holdInput(): void {
    const serving = this.#serving
    assert(serving !== undefined)
    serving.input = 'held'
    this.#parser.suspend()
  }

  releaseInput(request: RequestInProgress): void {
    const serving = this.#serving
    if (serving === undefined || this.socket.destroyed) {
      request.abandoned('client_closed')
      return
    }
    serving.request = request
    if (serving.input === 'held') serving.input = 'read'
    this.#readHeld(serving)
    try {
      request.start()
    } catch (error) {
      this.#failed(error)
    }
  }

  /** A fault of this program costs one connection, and not all of them. */
  #failed(fault: unknown): void {
    this.#owner.programFailed(fault)
    this.reset()
  }

  #readHeld(serving: Serving): void {
    const { held } = serving
    serving.held = undefined
    this.socket.resume()
    const bytes = held?.joined()
    if (bytes !== undefined) this.#read(bytes, bytes.length)
  }

  /** What arrived is no request, or came too slowly. */
  #inputBroken(input: BrokenInput): void {
    // Clients open connections before they need them. One that was never used gets no answer and no log line.
    if (this.socket.bytesRead === 0 || !this.socket.writable) {
      this.socket.destroy()
      return
    }
    const serving = this.#serving ?? new Serving(false, true)
    serving.isLast = true
    this.#dropInput(serving)
    if (serving.request !== undefined) {
      if (!this.response.isComplete) serving.request.clientFailed(input)
      return
    }
    this.#enter(serving)
    this.response = new ClientResponse(this)
    const { method, target } = this.#parser
    serving.request = this.#owner.handler.refuse({ ...input, method, target }, this)
  }

  /** A client that ends its side has left. A response that was written whole still goes out; any other is reset. */
  #inputEnded(): void {
    const state = this.#state
    if (state.name === 'serving') {
      state.isLast = true
      state.held = undefined
      // If the client reads on after all, it must not take a broken response for a complete one.
      if (!this.response.isWritten) this.reset()
    } else if (state.name !== 'first head' && state.name !== 'next head') return
    else if (this.#parser.isBetweenMessages) this.#linger()
    else this.#inputBroken({ code: 'request_invalid', reason: 'incomplete' })
  }

  #close(code: 'client_closed' | 'draining'): void {
    const state = this.#state
    if (state.name === 'closed') return
    this.#enter(CLOSED)
    if (state.name === 'serving') state.request?.abandoned(code)
  }

  #dropInput(serving: Serving): void {
    serving.input = 'dropped'
    serving.held = undefined
    this.socket.resume()
  }

  sendContinue(): void {
    const serving = this.#serving
    if (serving?.mayContinue !== true) return
    serving.mayContinue = false
    this.socket.write('HTTP/1.1 100 Continue\r\n\r\n', 'latin1')
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
    const firstBytes = this.#serving?.held?.joined()
    this.#enter(TUNNEL)
    this.#isStream = true
    for (const event of ['data', 'end', 'drain'] as const) socket.removeAllListeners(event)
    socket.pause()
    // A tunnel has no time limit, and a client may vanish without a word.
    carrier.setKeepAlive(true, KEEP_ALIVE_PROBE_MS)
    return { socket, carrier, firstBytes }
  }

  // ---- the end of a request, and of the connection

  /** The system has taken all of the response. */
  responseFlushed(): void {
    const serving = this.#serving
    if (serving === undefined) return
    serving.request?.responseFlushed()
    this.idleSince = clock.runningTime()
    if (this.socket.destroyed) this.#enter(CLOSED)
    else if (!this.response.keepsAlive || serving.isLast) this.#linger()
    else {
      this.#enter(NEXT_HEAD)
      this.#readHeld(serving)
    }
  }

  /** Ends our side, and drops what the client still sends: a reset could cost it our answer (RFC 9112 §9.6). */
  #linger(): void {
    this.#enter(LINGERING)
    this.socket.end()
    this.socket.resume()
  }

  #closeBehindResponse(serving: Serving): void {
    serving.isLast = true
    if (serving.isComplete) this.#dropInput(serving)
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
    // A client that reads until the end must not take a broken response for a complete one.
    const isBroken = this.#serving !== undefined && this.response.hasStarted
    this.isFinishing = true
    this.#close('draining')
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
    const state = this.#state
    if (state.name === 'tunnel') {
      this.#enter(LINGERING)
      this.socket.destroySoon()
    } else if (state.name === 'serving') {
      // The response before it has promised that the next request will be answered. The held request is then the last.
      const holdsNext = state.held !== undefined && this.response.isComplete && !isBlank(state.held.joined())
      if (!holdsNext) this.#closeBehindResponse(state)
    } else if (state.name !== 'lingering' && state.name !== 'closed' && this.#parser.isBetweenMessages) this.#linger()
  }

  /** Too many connections are open. */
  makeRoom(): void {
    this.#serving?.request?.clientFailed({ code: 'overloaded', limit: 'listen.maxConnections' })
    this.#destroy()
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
    this.#serving?.request?.clientFailed({ code: 'request_timeout', reason })
    if (wait.what !== 'content') this.#destroy()
  }

  /** While nothing is read, a reset shows only when something is written, and TLS hides it. A tunnel sees to it itself. */
  #probe(): void {
    const { socket } = this
    if (this.#serving !== undefined && socket.isPaused() && socket.writableLength === 0) this.#carrier.write('')
  }

  #awaited({ headersTimeoutMs, keepAliveTimeoutMs, idleTimeoutMs }: WaitLimits): Wait {
    const state = this.#state
    if (state.name === 'lingering') return { what: 'lingering', progress: 0, limitMs: LINGER_MS }
    if (state.name === 'tunnel' || state.name === 'closed') return NOTHING
    const { bytesRead, bytesWritten, writableLength } = this.socket
    // The system takes more bytes only when the client has emptied much of its buffers, in steps of a megabyte or so.
    const progress = bytesWritten - writableLength
    if (writableLength > 0) return { what: 'reader', progress, limitMs: idleTimeoutMs }
    if (state.name === 'serving') {
      // A client may be quiet inside its content while the service sends: it may be waiting for what it gets.
      if (state.request?.awaitsClient !== true) return NOTHING
      return { what: 'content', progress: bytesRead + progress, limitMs: idleTimeoutMs }
    }
    // No byte of a head counts as progress, so that all of it has to come within its limit.
    if (state.name === 'next head' && this.#parser.isBetweenMessages)
      return { what: 'next head', progress: this.idleSince, limitMs: keepAliveTimeoutMs }
    return { what: 'head', progress: this.idleSince, limitMs: headersTimeoutMs }
  }
}

/** Empty lines, which some clients send behind their content, begin no request. */
function isBlank(bytes: Buffer): boolean {
  return bytes.every((octet) => octet === CR || octet === LF)
}
