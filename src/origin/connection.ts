/**
 * One connection to the service. It carries one exchange at a time, and takes the next when nothing of the last is left.
 *
 * | state | what may come | what follows |
 * |---|---|---|
 * | `opening`: the first attempt waits for the socket | the socket | `awaiting token`, `awaiting head` |
 * | `free` | an attempt | `looking` |
 * | `looking`: the event loop reads what waits on the socket | nothing | `awaiting token`, `awaiting head` |
 * | | bytes, or an end: the attempt goes elsewhere | `closed` |
 * | `awaiting token`: the attempt has no token yet | the token | `awaiting head` |
 * | | an end of the attempt | `free` |
 * | | bytes, or an end: the attempt keeps waiting | `lost` |
 * | `awaiting head`: the request is written | the head | `relaying` |
 * | `relaying`: the attempt gets what comes | the attempt holds the response behind its head | `held` |
 * | | the attempt wants no more of it | `discarding` |
 * | | the end of the response | `free`, `closed` |
 * | `held` | what the attempt says | `relaying`, `discarding`, `tunnel` |
 * | `discarding`: nobody gets what comes | the end of the response | `free`, `closed` |
 * | | too much, or too late | `closed` |
 * | `lost`: closed, and the attempt has no token yet | the token: the attempt goes elsewhere | `closed` |
 * | `tunnel`: another has the socket | | |
 * | any but the last two | an end, an error, an end of the attempt | `closed` |
 */

import assert from 'node:assert/strict'
import type { Socket } from 'node:net'
import { OriginError } from '../errors.ts'
import { joinedValue } from '../http1/field-list.ts'
import { MalformedMessage } from '../http1/malformed.ts'
import {
  type ReceivedResponse,
  type ResponseEvents,
  ResponseParser,
  SWITCHING_PROTOCOLS,
} from '../http1/response-parser.ts'
import { keepReading, pauseForTurn, pushRead, wasReset } from '../node-internals.ts'
import type { Attempt, AttemptConnection, SwitchedConnection } from './attempt.ts'
import type { Connector } from './connector.ts'
import { originError } from './origin-failure.ts'
import { isJoined, type RequestContent, writeRequest } from './request-writer.ts'

/** What a connection tells and asks the pool that it belongs to. */
export interface Pool {
  /** For the reads of all tunnels: each copies what it has read, and an idle one holds no memory. */
  readonly tunnelBuffer: Buffer
  /** For the next read of any connection that has none. */
  spareBuffer: Buffer | undefined
  /** Calls `send` of the connection when the event loop has read what waits on it. */
  look(connection: Connection): void
  /** The connection may take the next attempt. The service keeps it idle for so long, if it says. */
  freed(connection: Connection, keepAliveSeconds: number | undefined): void
  /** The same, but it has not sent the attempt that it took. */
  returned(connection: Connection): void
  /** It takes no more attempts. It has not sent `unsent`, which goes elsewhere. */
  closed(connection: Connection, unsent?: Attempt): void
  /** Sends an attempt that was not written. */
  dispatch(attempt: Attempt): void
}

/** In milliseconds. */
export interface TimeLimits {
  /** For the head of the final response, from the last progress of the request. */
  readonly responseTimeoutMs: number
  /** For silence inside the content of a response. */
  readonly idleTimeoutMs: number
}

/** The most that one read from the kernel brings. */
const READ_BYTES = 64 * 1024

/** A response that nobody wants is read away up to this size and for this time, so that its connection can be used again. */
const MAX_DISCARDED_BYTES = 64 * 1024
const DISCARD_MS = 1_000

/** From this status on, a service may have answered without reading the content. */
const MULTIPLE_CHOICES = 300

/** An attempt before the head of its response. */
class Sending {
  name: 'opening' | 'looking' | 'awaiting token' | 'awaiting head' | 'lost'
  readonly attempt: Attempt
  /** Content that goes out in pieces; undefined if the request has none, or all of it was written with the head. */
  content: RequestContent | undefined
  /** The request has content that the service may not have read when it answers. */
  hasMuchContent = false

  constructor(name: 'opening' | 'looking', attempt: Attempt) {
    this.name = name
    this.attempt = attempt
  }
}

/** A final response, or a 101. */
class Receiving {
  name: 'held' | 'relaying' | 'discarding' = 'relaying'
  readonly attempt: Attempt
  readonly content: RequestContent | undefined
  readonly response: ReceivedResponse
  /** The connection may carry another exchange behind this response. */
  readonly persists: boolean
  /** Octets of content of the response. */
  contentBytes = 0
  /** The sink wants no more content for now. */
  isPaused = false
  /** While it is held: what was read, of which nothing from `restAt` on was told. The buffer is ours until then: Node reads into another one. */
  rest: Buffer | undefined
  restAt = 0

  constructor({ attempt, content }: Sending, response: ReceivedResponse, persists: boolean) {
    this.attempt = attempt
    this.content = content
    this.response = response
    this.persists = persists
  }
}

/** It carries nothing. */
interface Empty {
  name: 'free' | 'tunnel' | 'closed'
  readonly attempt?: undefined
  readonly content?: undefined
}

type State = Sending | Receiving | Empty

const FREE: Empty = { name: 'free' }
const TUNNEL: Empty = { name: 'tunnel' }
const OVER: Empty = { name: 'closed' }

/** Those that each may follow. */
const FORMER: Readonly<Record<State['name'], Readonly<Partial<Record<State['name'], true>>>>> = {
  opening: {},
  free: { relaying: true, discarding: true, 'awaiting token': true },
  looking: { free: true },
  'awaiting token': { looking: true, opening: true },
  'awaiting head': { looking: true, 'awaiting token': true, opening: true },
  relaying: { held: true, 'awaiting head': true },
  held: { relaying: true },
  discarding: { held: true, relaying: true },
  lost: { 'awaiting token': true },
  tunnel: { held: true },
  closed: {
    opening: true,
    free: true,
    looking: true,
    'awaiting head': true,
    relaying: true,
    held: true,
    discarding: true,
    lost: true,
  },
}

export class Connection implements AttemptConnection, ResponseEvents {
  readonly #pool: Pool
  readonly #parser: ResponseParser
  readonly #cancelOpening: () => void
  #state: State
  /** Undefined until it is open. */
  #socket: Socket | undefined
  /** Beneath TLS, if it is known. */
  #carrier: Socket | undefined
  /** For the next read. Undefined if the last one is still in use. */
  #buffer: Buffer | undefined
  /** The end of the last read, in its bytes. */
  #readBytes = 0
  /** Monotonic milliseconds. No request is taken after it. */
  readonly retiresAt: number
  /** Monotonic milliseconds. The pool sets it while the connection is free. */
  expiresAt = 0
  /** What `check` has seen. Undefined: the limit begins anew at the next `check`. */
  #progress: number | undefined
  /** When `check` has first seen it: running time. */
  #progressedAt = 0

  /** Opens the connection for its first attempt. */
  constructor(connector: Connector, pool: Pool, first: Attempt, retiresAt: number) {
    this.#pool = pool
    this.retiresAt = retiresAt
    this.#parser = new ResponseParser(this)
    this.#state = new Sending('opening', first)
    this.#hold(first, false)
    this.#cancelOpening = connector.open(this, first.request.isHandshake === true, (result, carrier) => {
      this.#carrier = carrier
      if (result instanceof OriginError) this.destroy(result)
      else this.#opened(result)
    })
  }

  /** The one way from state to state. Data that two states share stays in its object. */
  #enter<S extends State>(state: S, name: S['name'] = state.name): void {
    const former = this.#state.name
    if (FORMER[name][former] !== true) assert.fail(`${former}, then ${name}`) // `assert` makes an array at each call
    state.name = name
    this.#state = state
    this.#progress = undefined
  }

  /** Undefined while the connection carries none. */
  get attempt(): Attempt | undefined {
    return this.#state.attempt
  }

  get isConnected(): boolean {
    return this.#socket !== undefined
  }

  #opened(socket: Socket): void {
    const { attempt } = this.#state
    assert(attempt !== undefined)
    this.#socket = socket
    socket.on('error', (error) => this.destroy(originError(error)))
    socket.on('end', () => this.#inputEnded(socket))
    socket.on('close', () => this.destroy())
    socket.on('drain', () => this.#state.content?.resume())
    // A socket that is read into our buffers never emits it.
    socket.on('data', (chunk: Buffer) => this.received(chunk, chunk.length))
    // Whoever gets the socket of a tunnel sees to it.
    if (attempt.request.isHandshake !== true) keepReading(socket, () => this.#state.content?.detach())
    this.send()
  }

  /**
   * Sends the request of `attempt`, after a look at the connection: bytes or an end may wait on it that the event loop has not
   * read yet. Written before that, the request would get these bytes for its response.
   */
  carry(attempt: Attempt): void {
    this.#enter(new Sending('looking', attempt))
    this.#hold(attempt, true)
    this.#pool.look(this)
  }

  #hold(attempt: Attempt, isReused: boolean): void {
    attempt.isReused = isReused
    attempt.holder = this
    attempt.sink.carried?.(attempt)
  }

  /** Writes the request, unless its attempt has ended or gone elsewhere meanwhile. */
  send(): void {
    const state = this.#state
    if (state.name !== 'looking' && state.name !== 'opening') return
    const { attempt } = state
    try {
      const lines = attempt.sink.authorize?.()
      if (lines instanceof Promise) void this.#sendAuthorized(state, lines)
      else this.#write(state, lines)
    } catch (error) {
      if (this.#state === state) this.abort(attempt, error as Error)
    }
  }

  async #sendAuthorized(state: Sending, awaited: Promise<string>): Promise<void> {
    const { attempt } = state
    this.#enter(state, 'awaiting token')
    try {
      const lines = await awaited
      // The connection was idle, like one that is reused: what waits on it is seen first.
      await onceRead()
      if (this.#state !== state) return
      if (state.name === 'lost') {
        this.#enter(OVER)
        this.#pool.dispatch(attempt)
        return
      }
      this.#hold(attempt, true)
      this.#write(state, lines)
    } catch (error) {
      if (attempt.holder === this) this.abort(attempt, error as Error)
    }
  }

  #write(state: Sending, secretLines: string | undefined): void {
    const { attempt } = state
    this.#enter(state, 'awaiting head')
    assert(this.#socket !== undefined)
    attempt.isSent = true
    const { method, isHandshake } = attempt.request
    this.#parser.expect(method === 'HEAD', isHandshake)
    state.hasMuchContent = !isJoined(attempt)
    state.content = writeRequest(this.#socket, attempt, secretLines)
    attempt.sink.sent?.()
  }

  /** The buffer for the next read. */
  nextBuffer(): Buffer {
    const state = this.#state
    const isSwitch = state.name === 'held' && state.response.status === SWITCHING_PROTOCOLS
    if (isSwitch || state.name === 'tunnel') return this.#pool.tunnelBuffer
    if (this.#buffer === undefined) {
      this.#buffer = this.#pool.spareBuffer ?? Buffer.allocUnsafeSlow(READ_BYTES)
      this.#pool.spareBuffer = undefined
    }
    return this.#buffer
  }

  /** As the connector calls it. */
  received(bytes: Buffer, length: number): boolean {
    const state = this.#state
    if (state.name === 'tunnel') {
      assert(this.#socket !== undefined)
      return pushRead(this.#socket, Buffer.from(bytes.subarray(0, length)))
    }
    if (state.attempt?.isSent !== true) {
      // No request has been sent. These bytes must not become the response to the next one.
      this.destroy()
      return false
    }
    state.attempt.hasResponse = true
    if (state.name === 'held') this.#holdMore(state, bytes, length)
    else this.#read(bytes, 0, length)
    return true
  }

  /** A second read before the attempt has said what becomes of the first: of TLS, or of a stream. */
  #holdMore(state: Receiving, bytes: Buffer, length: number): void {
    assert(state.rest !== undefined)
    state.rest = Buffer.concat([state.rest.subarray(state.restAt, this.#readBytes), bytes.subarray(0, length)])
    state.restAt = 0
    this.#readBytes = state.rest.length
  }

  #read(bytes: Buffer, start: number, end: number): void {
    const { attempt } = this.#state
    try {
      this.#readBytes = end
      const next = this.#parser.read(bytes, start, end)
      const state = this.#state
      if (state.name === 'held') {
        state.rest = bytes
        state.restAt = next
        if (bytes === this.#buffer) this.#buffer = undefined
      } else if (state.attempt === attempt && state.name !== 'discarding') {
        attempt?.sink.responsePaused?.()
        if (state.name === 'relaying' && this.#parser.endsWithConnection) this.#lookForReset(state)
      }
    } catch (error) {
      this.destroy(error instanceof MalformedMessage ? protocolError(error) : (error as Error))
    }
  }

  /** Content that a reset has cut must not look complete. */
  #lookForReset(state: Receiving): void {
    assert(this.#socket !== undefined)
    if (!state.isPaused) pauseForTurn(this.#socket, () => !state.isPaused)
  }

  responseHead(response: ReceivedResponse): void {
    const state = this.#state
    assert(state.name === 'awaiting head' && this.#socket !== undefined)
    const { attempt, content, hasMuchContent } = state
    const isSwitch = response.status === SWITCHING_PROTOCOLS
    if (isSwitch && joinedValue(response.rawFields, 'upgrade').toLowerCase() !== 'websocket')
      throw new OriginError('http_upgrade_failed', 'a 101 for another protocol')
    // A service that answers early may never read the rest of the request, even if the kernel took it whole. Or it closes
    // although it said otherwise.
    const mayBeUnread = hasMuchContent && response.status >= MULTIPLE_CHOICES
    const isAllSent = content?.isOver !== false && this.#socket.writableLength === 0
    const isHandshake = attempt.request.isHandshake === true
    const persists = response.keepsAlive && !mayBeUnread && isAllSent && !isHandshake
    this.#enter(new Receiving(state, response, persists))
    attempt.sink.responseHead(response)
  }

  holdResponse(): void {
    const state = this.#state
    assert(state.name === 'relaying')
    this.#enter(state, 'held')
    this.#parser.suspend()
  }

  releaseResponse(): void {
    const state = this.#state
    assert(state.name === 'held')
    this.#enter(state, 'relaying')
    this.#readRest(state)
  }

  #readRest(state: Receiving): void {
    const { rest, restAt } = state
    assert(rest !== undefined)
    // A response without content has ended with its head.
    if (this.#parser.isBetweenMessages) this.messageEnd(restAt)
    else this.#read(rest, restAt, this.#readBytes)
    // Nobody reads in it any more.
    if (state.rest?.length === READ_BYTES) this.#pool.spareBuffer = rest
    state.rest = undefined
  }

  /** The connection leaves the pool. */
  switchProtocols(): SwitchedConnection {
    const state = this.#state
    const socket = this.#socket
    assert(state.name === 'held' && socket !== undefined)
    // A copy: the bytes are read into a buffer that others use, too.
    const firstBytes = Buffer.from(state.rest?.subarray(state.restAt, this.#readBytes) ?? [])
    this.#enter(TUNNEL)
    leave(state)
    this.#buffer = undefined
    this.#pool.closed(this)
    for (const event of ['data', 'end', 'drain']) socket.removeAllListeners(event)
    socket.pause()
    socket.allowHalfOpen = true // a WebSocket may end one side first
    return { socket, carrier: this.#carrier ?? socket, firstBytes }
  }

  messageContent(bytes: Buffer, start: number, end: number): void {
    const state = this.#state
    assert((state.name === 'relaying' || state.name === 'discarding') && this.#socket !== undefined)
    state.contentBytes += end - start
    if (state.name === 'discarding') {
      if (state.contentBytes > MAX_DISCARDED_BYTES) this.#close()
      return
    }
    const kept = state.attempt.sink.responseContent(bytes, start, end)
    if (kept === 'consumed') return
    if (bytes === state.rest) state.rest = undefined
    else this.#buffer = undefined
    if (kept !== 'pause') return
    state.isPaused = true
    this.#socket.pause()
  }

  resume(): void {
    const state = this.#state
    if (state.name !== 'relaying' || !state.isPaused) return
    state.isPaused = false
    this.#progress = undefined
    this.#socket?.resume()
  }

  /** The connection reads the rest away, if it can be used again behind it. */
  discardResponse(): void {
    const state = this.#state
    assert(state.name === 'held' || state.name === 'relaying')
    const wasHeld = state.name === 'held'
    this.#enter(state, 'discarding')
    state.attempt.holder = undefined
    if (!state.persists) this.#close()
    else if (wasHeld) this.#readRest(state)
  }

  /** Frees the connection first: the exchange may send its next attempt from within `responseEnd`. */
  messageEnd(next?: number): void {
    const state = this.#state
    if (state.name === 'held') return
    assert(state.name === 'relaying' || state.name === 'discarding')
    const { attempt, response, isPaused } = state
    // Bytes behind the response belong to no other one of ours.
    if (state.persists && next === this.#readBytes) {
      this.#enter(FREE)
      leave(state)
      if (isPaused) this.#socket?.resume() // by the last piece of content
      this.#pool.freed(this, response.keepAliveSeconds)
    } else this.#close()
    if (state.name === 'discarding') return
    try {
      attempt.sink.responseEnd()
    } catch (error) {
      attempt.sink.attemptFailed(attempt, error as Error)
    }
  }

  #inputEnded(socket: Socket): void {
    // The attempt says in this turn what becomes of the rest.
    if (this.#state.name === 'held') queueMicrotask(() => this.#inputEnded(socket))
    else if (wasReset(socket) || !this.#parser.finish()) this.destroy()
  }

  /** Ends an attempt that stands still for too long. To be called several times within each limit. `now` is running time. */
  check(now: number, { responseTimeoutMs, idleTimeoutMs }: TimeLimits): void {
    const state = this.#state
    if (state.attempt === undefined) return
    const progress = this.#measure(state)
    if (progress === undefined || progress !== this.#progress) {
      this.#progress = progress
      this.#progressedAt = now
      return
    }
    const ofResponse = state.name === 'discarding' ? DISCARD_MS : idleTimeoutMs
    const limitMs = 'response' in state ? ofResponse : responseTimeoutMs
    if (now - this.#progressedAt < limitMs) return
    if (state.name === 'discarding') this.#close()
    else this.abort(state.attempt, state.attempt.isSent ? TOO_LATE : NOT_CONNECTED)
  }

  /** Grows with each progress of the exchange, from -1 before its request is sent. Undefined while the service has nothing to do. */
  #measure(state: State): number | undefined {
    if (state.name === 'opening' || state.name === 'looking') return -1
    if (state.name === 'discarding') return 0
    if (state.name === 'held' || state.name === 'relaying') return state.isPaused ? undefined : state.contentBytes
    if (state.name !== 'awaiting head' || this.#socket === undefined) return undefined
    const { bytesWritten, writableLength } = this.#socket
    // It has taken all that has come from the client.
    if (state.content?.isOver === false && writableLength === 0) return undefined
    return bytesWritten - writableLength
  }

  /** For so long, the service has owed the head of a response. Undefined if it owes none. `now` is running time. */
  silentMs(now: number): number | undefined {
    const state = this.#state
    const progress = state.name === 'awaiting head' ? this.#measure(state) : undefined
    if (progress === undefined) return undefined
    return progress === this.#progress ? now - this.#progressedAt : 0
  }

  abort(attempt: Attempt, reason: Error): void {
    const state = this.#state
    if (state.name === 'awaiting token') {
      this.#enter(FREE)
      this.#pool.returned(this)
    } else if (state.name === 'lost') this.#enter(OVER)
    else this.#close()
    attempt.holder = undefined
    attempt.sink.attemptFailed(attempt, reason)
  }

  /** Closes the connection. Its attempt fails with `reason`, or goes elsewhere if it was not sent: at once, or when it has its token. */
  destroy(reason: Error = CLOSED): void {
    const { name, attempt } = this.#state
    this.#close(name === 'looking' ? attempt : undefined)
    if (name === 'opening' || name === 'awaiting head' || name === 'held' || name === 'relaying')
      attempt.sink.attemptFailed(attempt, reason)
  }

  /** `unsent` goes elsewhere. An attempt that waits for a token goes when it has it. */
  #close(unsent?: Attempt): void {
    const state = this.#state
    if (state.name === 'tunnel' || state.name === 'lost' || state.name === 'closed') return
    if (state.name === 'awaiting token') this.#enter(state, 'lost')
    else {
      this.#enter(OVER)
      if (state.attempt !== undefined) leave(state)
    }
    this.#socket?.destroy()
    this.#parser.stop()
    this.#cancelOpening()
    this.#pool.closed(this, unsent)
  }
}

/** The connection has no more to do with it. */
function leave({ attempt, content }: Sending | Receiving): void {
  attempt.holder = undefined
  content?.detach()
}

/** Behind the second immediate, the event loop has polled once more. */
function onceRead(): Promise<void> {
  return new Promise((resolve) => setImmediate(() => setImmediate(resolve)))
}

function protocolError({ reason }: MalformedMessage): OriginError {
  return new OriginError(reason === 'switch_to_nothing' ? 'http_upgrade_failed' : 'http_protocol_error', reason, {
    reason,
  })
}

const CLOSED = new OriginError('connection_terminated', 'closed by the service')
const TOO_LATE = new OriginError('http_response_timeout', 'the service is silent')
const NOT_CONNECTED = new OriginError('connection_timeout', 'no connection in time', {
  hint: 'TCP and TLS with the service took longer than origin.responseTimeout.',
})
