/** One client connection: its requests one after another, and the watch over a client that falls silent. */

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Failure } from '../errors.ts'
import type { ExchangeOwner } from '../gateway/exchange.ts'
import type { SendQueues } from './send-queues.ts'
import { WriteWatch } from './write-watch.ts'

/** What a connection can do to the exchange that it carries. */
export interface Carried {
  readonly awaitsClient: boolean
  fail(failure: Failure): void
  clientGone(): void
}

export interface ConnectionHost {
  readonly sendQueues: SendQueues
  /** Starts the next request; what it carries is given to `carry`, if it is still under way. */
  begin(connection: Connection, message: IncomingMessage, response: ServerResponse): void
  exchangeEnded(connection: Connection): void
}

/** Requests that may wait behind the one in hand; a client that pipelines more is cut off. */
const MAX_WAITING = 128

/** After our last byte: how long what the client still sends is read away, so that it can read our answer. */
const LINGER_MS = 2_000

/**
 * Between the interim responses that find out whether a client is there: enough for the reset that answers one. The second
 * one meets the reset of who was connected directly, the third one that had to come through a relay.
 */
const INTERIM_PAUSES_MS = [10, 20, 40] as const

/** Within this, some content follows a head, or the client that has closed meanwhile counts as gone. */
const CONTENT_PAUSE_MS = 25

export class Connection implements ExchangeOwner {
  readonly socket: Socket
  readonly #host: ConnectionHost
  readonly #waiting: (() => void)[] = []
  #message: IncomingMessage | undefined
  #response: ServerResponse | undefined
  #carried: Carried | undefined
  #lingersUntil = Number.POSITIVE_INFINITY
  #readBytes = 0
  #readAt = 0
  /** From the first time on that a response had to wait for its client. */
  #writeWatch: WriteWatch | undefined
  isBusy = false
  isTunnel = false
  /** From another machine, where only this one is let in: all that it gets is a refusal. */
  isForeign = false
  /** No further request is taken from it. */
  isClosing = false
  /** Monotonic milliseconds. */
  idleSince: number

  constructor(socket: Socket, host: ConnectionHost, now: number) {
    this.socket = socket
    this.#host = host
    this.idleSince = now
    socket.on('error', () => undefined) // Node takes its own listener away with an upgrade
    socket.on('end', () => this.#inputEnded())
    socket.once('close', () => this.#closed())
    // Node destroys a connection as soon as its last response is flushed. If content is still arriving then, the client
    // gets a reset and may lose the response: we end our side and read on for a while instead (RFC 9112 §9.6).
    socket.destroySoon = () => this.linger()
  }

  /** Takes the next request of this connection: at once, or when the ones before it have ended. */
  take(message: IncomingMessage, response: ServerResponse): void {
    if (this.isClosing) return
    if (this.isBusy) this.#enqueue(() => this.#start(message, response))
    else this.#start(message, response)
  }

  /** For what ends the connection's use for requests: its turn comes when those before it have been answered. */
  takeOver(start: () => void): void {
    if (this.isClosing) return
    if (this.isBusy) {
      this.#enqueue(start)
      return
    }
    this.isBusy = true
    start()
  }

  #enqueue(start: () => void): void {
    if (this.#waiting.length < MAX_WAITING) {
      this.#waiting.push(start)
      return
    }
    this.isClosing = true
    this.#waiting.length = 0
  }

  #start(message: IncomingMessage, response: ServerResponse): void {
    this.isBusy = true
    this.#message = message
    this.#response = response
    this.#host.begin(this, message, response)
  }

  /** What is under way now; not called for what has ended at once. */
  carry(carried: Carried): void {
    this.#carried = carried
  }

  exchangeEnded(): void {
    this.#carried = undefined
    this.#message = undefined
    const response = this.#response
    this.#response = undefined
    this.#host.exchangeEnded(this)
    if (this.isTunnel) return
    if (isFlushed(response) && this.#waiting.length === 0 && !this.isClosing) this.isBusy = false
    else whenFlushed(this.socket, response, () => this.#goOn())
  }

  /** The last response is out of our hands. Until then another would have no socket to be written to. */
  #goOn(): void {
    const next = this.#waiting.shift()
    if (next !== undefined && !this.isClosing) {
      next()
      return
    }
    this.isBusy = false
    if (this.isClosing) this.socket.destroySoon()
  }

  /** Bytes that are no request have come. */
  inputBroken(failure: Failure): 'answered' | 'unanswered' {
    const isSettled = this.isClosing || this.isBusy
    this.isClosing = true
    if (this.#carried === undefined) return isSettled ? 'answered' : 'unanswered'
    // Broken content breaks its request. Broken bytes behind a whole request leave it alone: it may have been carried out.
    if (this.#message?.complete === false) this.#carried.fail(failure)
    else if (this.#response?.headersSent === false) this.#response.shouldKeepAlive = false
    return 'answered'
  }

  /**
   * A client that has closed and one that has only finished sending look alike until we write: an interim response
   * (RFC 9110 §15.2) reaches the second and makes the first one's system answer with a reset. Nothing listens for that
   * reset, because reading has ended; the next write meets it.
   */
  #inputEnded(): void {
    const carried = this.#carried
    if (carried === undefined || this.isTunnel) return
    if (this.#writeInterim()) {
      this.#repeatInterim(carried, INTERIM_PAUSES_MS)
      return
    }
    if (this.#response?.headersSent !== true) {
      this.#giveUp(carried)
      return
    }
    // Content is on its way, and serves as well: of a client that is there, nothing comes back.
    const { bytesWritten } = this.socket
    setTimeout(() => {
      if (this.#carried !== carried) return
      if (this.socket.bytesWritten === bytesWritten) this.#giveUp(carried)
      else this.socket.write('') // meets the reset, if there was one
    }, CONTENT_PAUSE_MS).unref()
  }

  #giveUp(carried: Carried): void {
    carried.clientGone()
    this.socket.destroy()
  }

  #repeatInterim(carried: Carried, [pauseMs, ...rest]: readonly number[]): void {
    if (pauseMs === undefined) return
    setTimeout(() => {
      if (this.#carried === carried && this.#writeInterim()) this.#repeatInterim(carried, rest)
    }, pauseMs).unref()
  }

  /** False where no interim response can stand any more. */
  #writeInterim(): boolean {
    if (this.#response?.headersSent !== false || this.#message?.httpVersionMinor !== 1) return false
    this.socket.write('HTTP/1.1 100 Continue\r\n\r\n')
    return true
  }

  #closed(): void {
    this.isClosing = true
    this.#waiting.length = 0
    this.#carried?.clientGone()
  }

  /** No more requests: what is in hand finishes, with `Connection: close` where its head is still to come. */
  finish(): void {
    this.isClosing = true
    if (this.isTunnel) return
    if (!this.isBusy) this.linger()
    else if (this.#response?.headersSent === false) this.#response.shouldKeepAlive = false
  }

  linger(): void {
    this.isClosing = true
    if (this.#lingersUntil !== Number.POSITIVE_INFINITY) return
    this.#lingersUntil = performance.now() + LINGER_MS
    this.socket.end()
    if (!this.socket.readableEnded) this.socket.resume()
  }

  /** Ends what has been silent too long. `now` in monotonic milliseconds. */
  check(now: number, idleTimeoutMs: number, keepAliveTimeoutMs: number): void {
    if (now >= this.#lingersUntil) {
      this.socket.destroy()
      return
    }
    if (this.isTunnel) return
    if (!this.isBusy && this.socket.writableLength === 0) {
      this.#writeWatch = undefined
      this.#checkIdle(now, keepAliveTimeoutMs)
      return
    }
    if (this.#carried?.awaitsClient === true) this.#checkReading(this.#carried, now, idleTimeoutMs)
    else this.#readAt = now
    if (this.socket.writableLength > 0) this.#writeWatch ??= this.#watchWriting()
    this.#writeWatch?.check(now, idleTimeoutMs)
  }

  #checkIdle(now: number, keepAliveTimeoutMs: number): void {
    const { bytesRead } = this.socket
    if (bytesRead !== this.#readBytes) {
      // The beginning of the next request, which has a time limit of its own, or all of the last one.
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

  #watchWriting(): WriteWatch {
    return new WriteWatch(this.socket, this.#host.sendQueues, () => {
      this.#carried?.fail({ code: 'request_timeout' })
      this.socket.destroy()
    })
  }
}

/** With `finish` Node parts a response and its socket, whoever has written the bytes; newer versions note only their own. */
function isFlushed(response: ServerResponse | undefined): boolean {
  return response === undefined || response.socket === null
}

/** Responses leave in order: the next one is begun when this one is out of our hands. */
function whenFlushed(socket: Socket, response: ServerResponse | undefined, next: () => void): void {
  if (isFlushed(response)) process.nextTick(next)
  else
    response?.once('finish', () => {
      if (!socket.destroyed) next()
    })
}
