/**
 * One client connection. Serves its requests one after another: if the next request arrives before the current one has been
 * answered, the parser stops behind its head until it is its turn. Watches for clients that leave or fall silent.
 */

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { CallerUsage } from '../callers/callers.ts'
import type { Failure } from '../errors.ts'
import type { ExchangeOwner } from '../gateway/exchange.ts'
import {
  discardInput,
  lastResponse,
  makeStoppable,
  markLast,
  restartParser,
  type StoppedParser,
} from '../http/node-internals.ts'

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

interface Waiting {
  /** Undefined if the connection leaves HTTP with this request. */
  readonly response: ServerResponse | undefined
  readonly start: () => void
}

/**
 * While a request waits, up to this much is read of what follows it, so that a client that leaves is noticed. Beyond it the
 * socket is paused.
 */
const MAX_HELD_BYTES = 16 * 1024

/** Memory that a piece of input takes at least, however few bytes it has. */
const PIECE_BYTES = 1024

/** Input is read and dropped for this time after our last byte. An earlier reset could cost the client our answer. */
const LINGER_MS = 2_000

/**
 * Pauses between the interim responses that find out whether a client is there. The first one provokes a reset from a
 * client that has gone, the second one meets it. Through a relay the reset comes one later, and the third one meets it.
 */
const INTERIM_PAUSES_MS = [10, 20, 40] as const

/** After a client has finished sending, part of the response has to be written within this time, or the client counts as gone. */
const CONTENT_PAUSE_MS = 25

export class ClientConnection implements ExchangeOwner {
  readonly socket: Socket
  readonly #owner: ConnectionOwner
  #message: IncomingMessage | undefined
  #response: ServerResponse | undefined
  #carried: Carried | undefined
  /** The next request. Its head has been parsed; it waits for the current one. */
  #waiting: Waiting | undefined
  #isParserStopped = false
  /** The bytes read behind the head at which the parser stopped. */
  #held: Buffer[] = []
  #heldBytes = 0
  #hasInputEnded = false
  #lingersUntil = Number.POSITIVE_INFINITY
  /** Finite once the request whose head is arriving is the last one: when that head has to be complete. */
  #lastHeadUntil = Number.POSITIVE_INFINITY
  #readBytes = 0
  #readAt = 0
  #takenBytes = 0
  #takenAt = 0
  isBusy = false
  isTunnel = false
  /** True for a client on another machine, if `listen.allowRemote` is off. All its requests are refused. */
  readonly isForeign: boolean
  /** Path of the caller's own socket that it came through; undefined for the common address. */
  readonly callerSocket: string | undefined
  /** Counts the current request for its caller. */
  #usage: CallerUsage | undefined
  /** No further request is taken. */
  isClosing = false
  /** Monotonic milliseconds. */
  idleSince = performance.now()

  constructor(socket: Socket, owner: ConnectionOwner, isForeign: boolean, callerSocket: string | undefined) {
    this.socket = socket
    this.#owner = owner
    this.isForeign = isForeign
    this.callerSocket = callerSocket
    socket.on('error', () => undefined) // Node removes its own listener when a connection is upgraded
    socket.on('end', () => this.#inputEnded())
    socket.once('close', () => this.#closed())
    // Node destroys a connection as soon as its last response is flushed. If content is still arriving then, the client
    // gets a reset and may lose the response. We end our side and read on for a while instead (RFC 9112 §9.6).
    socket.destroySoon = () => this.linger()
    this.parserAttached()
  }

  /** To be called whenever Node has given this connection a parser. */
  parserAttached(): void {
    makeStoppable(this.socket, () => this.#isParserStopped)
  }

  /** Takes the next request: starts it now, or when the current one has been answered. */
  take(message: IncomingMessage, response: ServerResponse): void {
    if (this.isBusy || this.isClosing) this.#isParserStopped = true
    if (this.isClosing) return
    if (this.isBusy) {
      this.#waiting = { response, start: () => this.#start(message, response) }
      return
    }
    if (this.#lastHeadUntil !== Number.POSITIVE_INFINITY) response.shouldKeepAlive = false
    this.#start(message, response)
  }

  /** Calls `start` for a request after which the connection leaves HTTP, when the current request has been answered. */
  leaveHttp(start: () => void): void {
    if (this.isClosing) return
    if (this.isBusy) {
      this.#waiting = { response: undefined, start }
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

  #start(message: IncomingMessage, response: ServerResponse): void {
    this.isBusy = true
    this.#message = message
    this.#response = response
    this.#owner.begin(this, message, response)
  }

  /** Takes the exchange that is under way. Not called for a request that was answered at once. */
  carry(carried: Carried): void {
    this.#carried = carried
  }

  exchangeEnded(): void {
    this.idleSince = performance.now()
    this.countFor(undefined)
    this.#carried = undefined
    this.#message = undefined
    const response = this.#response
    this.#response = undefined
    this.#owner.exchangeEnded()
    if (this.isTunnel) return
    // Until Node has taken the socket from this response, the next one has none to be written to.
    if (response === undefined || response.socket === null) this.#goOn()
    else response.once('finish', () => this.#goOn())
  }

  /** The last response has been handed to the system. */
  #goOn(): void {
    if (this.socket.destroyed) return
    const waiting = this.#waiting
    if (waiting !== undefined && !this.isClosing) {
      // Other connections run first. A chain of requests that are refused at once would never return to the event loop.
      setImmediate(() => this.#startWaiting(waiting))
      return
    }
    this.isBusy = false
    if (this.isClosing) this.socket.destroySoon()
  }

  #startWaiting({ response, start }: Waiting): void {
    if (this.isClosing) {
      this.#goOn()
      return
    }
    this.#waiting = undefined
    if (response === undefined) {
      start()
      return
    }
    if (this.#hasInputEnded) markLast(response, this.#heldBytes === 0)
    start()
    const held = this.#held.length > 1 ? Buffer.concat(this.#held, this.#heldBytes) : this.#held[0]
    this.#held = []
    this.#heldBytes = 0
    this.#isParserStopped = false
    restartParser(this.socket, held)
    this.#inputFed()
  }

  /** For a connection that returns to HTTP: `feed` gives it a parser and what was read already. */
  returnToHttp(feed: () => void): void {
    this.isBusy = false
    feed()
    this.#inputFed()
  }

  #inputFed(): void {
    if (this.#waiting !== undefined) return // nobody may read on meanwhile, least of all bytes of another protocol
    this.socket.resume()
    if (!this.#hasInputEnded) return
    if (this.#message?.complete === false) this.inputBroken({ code: 'request_invalid' })
    else if (this.#response !== undefined) markLast(this.#response, true)
    else {
      // The last request was answered before the rest of the input was parsed, and the rest holds no other one.
      this.isClosing = true
      if (!this.isBusy) this.linger()
    }
  }

  /** Takes bytes that arrived while the parser was stopped. */
  inputHeld({ bytes, parsedBytes }: StoppedParser): void {
    if (this.isClosing) {
      discardInput(this.socket)
      return
    }
    const isFirst = this.#heldBytes === 0 && this.#held.length === 0
    const rest = isFirst ? bytes.subarray(parsedBytes) : bytes
    this.#held.push(rest)
    this.#heldBytes += rest.length
    process.nextTick(() => this.#throttle())
  }

  /** Runs in a later tick: Node resumes the socket in a tick of its own after each message. */
  #throttle(): void {
    if (!this.#isParserStopped || this.isClosing) return
    if (this.#heldBytes + this.#held.length * PIECE_BYTES > MAX_HELD_BYTES) this.socket.pause()
    else this.socket.resume()
  }

  /** The parser has refused what arrived, or the head was too slow. */
  inputBroken(failure: Failure): 'answered' | 'unanswered' {
    const isSettled = this.isClosing || this.isBusy
    this.isClosing = true
    discardInput(this.socket)
    if (this.#carried === undefined) return isSettled ? 'answered' : 'unanswered'
    // Broken content breaks its request. Broken bytes behind a complete request do not: it may have been carried out.
    if (this.#message?.complete === false) this.#carried.fail(failure)
    else if (this.#response?.headersSent === false) this.#response.shouldKeepAlive = false
    return 'answered'
  }

  /**
   * A client that has gone and one that has only finished sending look alike until we write something. An interim response
   * (RFC 9110 §15.2) does no harm to the second, and makes the system of the first answer with a reset. We have stopped
   * reading, so we notice that reset with the next write. HTTP/1.0 has no interim responses; there the response itself finds
   * out.
   */
  #inputEnded(): void {
    this.#hasInputEnded = true
    const carried = this.#carried
    if (carried === undefined || this.isTunnel) return
    if (this.#response?.headersSent !== true) {
      if (this.#writeInterim()) this.#repeatInterim(carried, INTERIM_PAUSES_MS)
      return
    }
    // The response has begun, so its content has to serve as the probe.
    const { bytesWritten } = this.socket
    const judge = () => {
      if (this.#carried !== carried) return
      if (this.socket.bytesWritten !== bytesWritten) {
        this.socket.write('') // notices the reset, if there was one
        return
      }
      carried.clientGone()
      this.socket.destroy()
    }
    // A busy process runs late timers before it reads what the service has sent in time. So it reads once more.
    setTimeout(() => setImmediate(judge), CONTENT_PAUSE_MS).unref()
  }

  #repeatInterim(carried: Carried, [pauseMs, ...rest]: readonly number[]): void {
    if (pauseMs === undefined) return
    setTimeout(() => {
      if (this.#carried === carried && this.#writeInterim()) this.#repeatInterim(carried, rest)
    }, pauseMs).unref()
  }

  /** Returns false if an interim response is not possible, or no longer. */
  #writeInterim(): boolean {
    if (this.#response?.headersSent !== false || this.#message?.httpVersionMinor !== 1) return false
    this.socket.write('HTTP/1.1 100 Continue\r\n\r\n')
    return true
  }

  #closed(): void {
    this.isClosing = true
    this.#waiting = undefined
    this.#held = []
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
   *
   * To be called after `close` on the server. Node closes the idle connections there, so one that is left has either never been
   * used, or has read a part of a head.
   */
  finish(headUntil: number): void {
    if (!this.isBusy && !this.isClosing && this.socket.bytesRead > 0) {
      this.#lastHeadUntil = headUntil
      return
    }
    this.isClosing = true
    if (this.isTunnel) return
    if (!this.isBusy) this.linger()
    else if (this.#response?.headersSent === false) this.#response.shouldKeepAlive = false
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
    if (now >= this.#lastHeadUntil) this.linger()
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
