/** One connection to the service. It carries one exchange at a time, and takes the next when nothing of the last is left. */

import assert from 'node:assert/strict'
import type { Socket } from 'node:net'
import { OriginError } from '../errors.ts'
import { joinedValue } from '../http1/field-list.ts'
import { MalformedMessage } from '../http1/malformed.ts'
import { type ReceivedResponse, type ResponseEvents, ResponseParser } from '../http1/response-parser.ts'
import { keepReading } from '../node-internals.ts'
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

const SWITCHING_PROTOCOLS = 101
/** From this status on, a service may have answered without reading the content. */
const MULTIPLE_CHOICES = 300

/**
 * How an exchange leaves it:
 * - `abort`: the attempt fails, and the socket closes, or goes back to the pool if the attempt waited for a token.
 * - `destroy`: the attempt fails, or goes elsewhere if it was not sent, and the socket closes. An attempt that waits for a token
 *   stays until it has it. Nobody is told of a response that is read away.
 * - `#close`: nobody is told but the pool, and the socket closes.
 * - `#detach`: nobody is told, and the socket stays open.
 */
export class Connection implements AttemptConnection, ResponseEvents {
  readonly #pool: Pool
  readonly #parser: ResponseParser
  readonly #cancelOpening: () => void
  #socket: Socket | undefined
  /** Beneath TLS, if it is known. */
  #carrier: Socket | undefined
  /** Undefined while the connection is free. */
  attempt: Attempt | undefined
  /** Content that goes out in pieces; undefined if the request has none, or all of it was written with the head. */
  #content: RequestContent | undefined
  /** The final response, or a 101. */
  #response: ReceivedResponse | undefined
  /** It waits for a token. */
  #awaiting: Attempt | undefined
  /** Nobody wants the response. */
  #isDiscarding = false
  /** Octets of content of the response. */
  #contentBytes = 0
  /** True if the connection may carry another exchange behind this response. */
  #persists = false
  /** The end of the last read, in its bytes. */
  #readBytes = 0
  /** The attempt has the head, and has not said yet what becomes of the rest: what `#rest` has from `#restAt` on. */
  #isHeld = false
  /** Node asks for the buffer of the next read before that, so it is not this one. */
  #rest: Buffer | undefined
  #restAt = 0
  /** True if the request has content that the service may not have read when it answers. */
  #hasMuchContent = false
  /** True once the connection takes no more attempts. */
  #isClosed = false
  #isTunnel = false
  /** The sink wants no more content for now. */
  #isPaused = false
  /** For the next read. Undefined if the last one is still in use. */
  #buffer: Buffer | undefined
  /** Monotonic milliseconds. No request is taken after it. */
  readonly retiresAt: number
  /** Monotonic milliseconds. The pool sets it while the connection is free. */
  expiresAt = 0
  /** What `check` has seen. Undefined: time begins at the next `check`. */
  #progress: number | undefined
  /** When `check` has first seen it: running time. */
  #progressedAt = 0

  /** Opens the connection for its first attempt. */
  constructor(connector: Connector, pool: Pool, first: Attempt, retiresAt: number) {
    this.#pool = pool
    this.retiresAt = retiresAt
    this.#parser = new ResponseParser(this)
    first.isReused = false
    this.#hold(first)
    this.#cancelOpening = connector.open(this, first.request.isHandshake === true, (result, carrier) => {
      this.#carrier = carrier
      if (result instanceof OriginError) this.destroy(result)
      else this.#opened(result)
    })
  }

  get isConnected(): boolean {
    return this.#socket !== undefined
  }

  #opened(socket: Socket): void {
    this.#socket = socket
    socket.on('error', (error) => this.destroy(originError(error)))
    socket.on('end', () => this.#inputEnded(socket))
    socket.on('close', () => this.destroy())
    socket.on('drain', () => this.#content?.resume())
    // A socket that is read into our buffers never emits it.
    socket.on('data', (chunk: Buffer) => this.received(chunk, chunk.length))
    assert(this.attempt !== undefined)
    // Whoever gets the socket of a tunnel sees to it.
    if (this.attempt.request.isHandshake !== true) keepReading(socket, () => this.#content?.detach())
    this.send()
  }

  /**
   * Sends the request of `attempt`, after a look at the connection: bytes or an end may wait on it that the event loop has not
   * read yet. Written before that, the request would get these bytes for its response.
   */
  carry(attempt: Attempt): void {
    attempt.isReused = true
    this.#hold(attempt)
    this.#pool.look(this)
  }

  #hold(attempt: Attempt): void {
    assert(this.attempt === undefined && !this.#isClosed)
    this.attempt = attempt
    attempt.holder = this
    attempt.sink.carried?.(attempt)
    this.#progress = undefined
  }

  /** Writes the request, unless its attempt has ended or gone elsewhere meanwhile. */
  send(): void {
    const { attempt } = this
    if (attempt === undefined || this.#socket === undefined) return
    try {
      const lines = attempt.sink.authorize?.()
      if (lines instanceof Promise) void this.#sendAuthorized(attempt, lines)
      else this.#write(attempt, lines)
    } catch (error) {
      if (this.attempt === attempt) this.abort(attempt, error as Error)
    }
  }

  async #sendAuthorized(attempt: Attempt, awaited: Promise<string>): Promise<void> {
    this.#awaiting = attempt
    try {
      const lines = await awaited
      // The connection was idle, like one that is reused: what waits on it is seen first.
      await onceRead()
      if (attempt.holder !== this) return
      this.#awaiting = undefined
      if (this.#isClosed) return this.#pool.dispatch(attempt)
      attempt.isReused = true
      attempt.sink.carried?.(attempt)
      this.#write(attempt, lines)
    } catch (error) {
      if (attempt.holder === this) this.abort(attempt, error as Error)
    }
  }

  #write(attempt: Attempt, secretLines: string | undefined): void {
    assert(this.attempt === attempt && this.#socket !== undefined)
    attempt.isSent = true
    const { method, isHandshake } = attempt.request
    this.#parser.expect(method === 'HEAD', isHandshake)
    this.#hasMuchContent = !isJoined(attempt)
    this.#contentBytes = 0
    this.#content = writeRequest(this.#socket, attempt, secretLines)
    attempt.sink.sent?.()
  }

  /** The buffer for the next read. */
  nextBuffer(): Buffer {
    if (this.#isTunnel || this.#response?.status === SWITCHING_PROTOCOLS) return this.#pool.tunnelBuffer
    if (this.#buffer === undefined) {
      this.#buffer = this.#pool.spareBuffer ?? Buffer.allocUnsafeSlow(READ_BYTES)
      this.#pool.spareBuffer = undefined
    }
    return this.#buffer
  }

  /** As the connector calls it. */
  received(bytes: Buffer, length: number): boolean {
    const { attempt } = this
    // Whoever has got the socket of a tunnel reads it as a stream.
    if (this.#isTunnel) return this.#socket?.push(Buffer.from(bytes.subarray(0, length))) === true
    if (attempt?.isSent !== true) {
      // No request has been sent. These bytes must not become the response to the next one.
      this.destroy()
      return false
    }
    attempt.hasResponse = true
    if (this.#isHeld) this.#holdMore(bytes, length)
    else this.#read(bytes, 0, length)
    return true
  }

  /** A second read before the attempt has said what becomes of the first: of TLS, or of a stream. */
  #holdMore(bytes: Buffer, length: number): void {
    assert(this.#rest !== undefined)
    this.#rest = Buffer.concat([this.#rest.subarray(this.#restAt, this.#readBytes), bytes.subarray(0, length)])
    this.#restAt = 0
    this.#readBytes = this.#rest.length
  }

  #read(bytes: Buffer, start: number, end: number): void {
    const { attempt } = this
    try {
      this.#readBytes = end
      const next = this.#parser.read(bytes, start, end)
      if (this.#isHeld) {
        this.#rest = bytes
        this.#restAt = next
        if (bytes === this.#buffer) this.#buffer = undefined
      } else if (this.attempt === attempt && !this.#isDiscarding) {
        attempt?.sink.responsePaused?.()
        if (this.#parser.endsWithConnection) this.#pauseForTurn()
      }
    } catch (error) {
      this.destroy(error instanceof MalformedMessage ? protocolError(error) : (error as Error))
    }
  }

  /**
   * Node tells of a reset as of an end if it finds the reset together with data, and goes on reading (uv__stream_io of libuv). Then
   * content that was cut would look complete. Behind a pause, it reads the reset by itself.
   */
  #pauseForTurn(): void {
    const socket = this.#socket
    if (socket === undefined || this.#isPaused) return
    socket.pause()
    setImmediate(() => {
      if (!this.#isPaused) socket.resume()
    })
  }

  responseHead(response: ReceivedResponse): void {
    const { attempt } = this
    assert(attempt !== undefined && this.#socket !== undefined)
    this.#response = response
    this.#progress = undefined
    const isSwitch = response.status === SWITCHING_PROTOCOLS
    if (isSwitch && joinedValue(response.rawFields, 'upgrade').toLowerCase() !== 'websocket')
      throw new OriginError('http_upgrade_failed', 'a 101 for another protocol')
    // A service that answers early may never read the rest of the request, even if the kernel took it whole. Or it closes
    // although it said otherwise.
    const mayBeUnread = this.#hasMuchContent && response.status >= MULTIPLE_CHOICES
    const isAllSent = this.#content?.isOver !== false && this.#socket.writableLength === 0
    const isHandshake = attempt.request.isHandshake === true
    this.#persists = response.keepsAlive && !mayBeUnread && isAllSent && !isHandshake
    attempt.sink.responseHead(response)
  }

  holdResponse(): void {
    this.#isHeld = true
    this.#parser.suspend()
  }

  releaseResponse(): void {
    const rest = this.#rest
    assert(this.#isHeld && rest !== undefined)
    this.#isHeld = false
    // A response without content has ended with its head.
    if (this.#parser.isBetweenMessages) this.messageEnd(this.#restAt)
    else this.#read(rest, this.#restAt, this.#readBytes)
    // Nobody reads in it any more.
    if (this.#rest?.length === READ_BYTES) this.#pool.spareBuffer = rest
    this.#rest = undefined
  }

  /** The connection leaves the pool. */
  switchProtocols(): SwitchedConnection {
    const socket = this.#socket
    assert(this.#isHeld && socket !== undefined)
    // A copy: the bytes are read into a buffer that others use, too.
    const firstBytes = Buffer.from(this.#rest?.subarray(this.#restAt, this.#readBytes) ?? [])
    this.#detach()
    this.#isClosed = true
    this.#isTunnel = true
    this.#buffer = undefined
    this.#rest = undefined
    this.#pool.closed(this)
    for (const event of ['data', 'end', 'drain']) socket.removeAllListeners(event)
    socket.pause()
    socket.allowHalfOpen = true // a WebSocket may end one side first
    return { socket, carrier: this.#carrier ?? socket, firstBytes }
  }

  messageContent(bytes: Buffer, start: number, end: number): void {
    assert(this.attempt !== undefined && this.#socket !== undefined)
    this.#contentBytes += end - start
    if (this.#isDiscarding) {
      if (this.#contentBytes > MAX_DISCARDED_BYTES) this.#close()
      return
    }
    const use = this.attempt.sink.responseContent(bytes, start, end)
    if (use === 'consumed') return
    if (bytes === this.#rest) this.#rest = undefined
    else this.#buffer = undefined
    if (use !== 'pause') return
    this.#isPaused = true
    this.#socket.pause()
  }

  resume(): void {
    if (!this.#isPaused) return
    this.#isPaused = false
    this.#progress = undefined
    this.#socket?.resume()
  }

  /** The connection reads the rest away, if it can be used again behind it. */
  discardResponse(): void {
    const { attempt } = this
    assert(attempt !== undefined && this.#response !== undefined)
    attempt.holder = undefined
    this.#isDiscarding = true
    this.#progress = undefined
    if (!this.#persists) this.#close()
    else if (this.#isHeld) this.releaseResponse()
  }

  /** Frees the connection first: the exchange may send its next attempt from within `responseEnd`. */
  messageEnd(next?: number): void {
    if (this.#isHeld) return
    const response = this.#response
    const isDiscarding = this.#isDiscarding
    const attempt = this.#detach()
    assert(attempt !== undefined && response !== undefined)
    this.resume() // the last piece of content may have paused it
    // Bytes behind the response belong to no other one of ours.
    if (this.#persists && next === this.#readBytes) this.#pool.freed(this, response.keepAliveSeconds)
    else this.#close()
    if (isDiscarding) return
    try {
      attempt.sink.responseEnd()
    } catch (error) {
      attempt.sink.attemptFailed(attempt, error as Error)
    }
  }

  #inputEnded(socket: Socket): void {
    if (this.#isClosed) return
    // The attempt says in this turn what becomes of the rest.
    if (this.#isHeld) {
      queueMicrotask(() => this.#inputEnded(socket))
      return
    }
    // For a socket through a proxy, that pause is none. But a socket that was reset has no peer; behind a FIN it has one. A unix
    // socket has no addresses at all.
    const wasReset = socket.remoteAddress === undefined && socket.localAddress !== undefined
    if (!wasReset && this.attempt !== undefined && this.#parser.finish()) return
    this.destroy()
  }

  /** Ends an attempt that stands still for too long. To be called several times within each limit. `now` is running time. */
  check(now: number, { responseTimeoutMs, idleTimeoutMs }: TimeLimits): void {
    const { attempt } = this
    if (attempt === undefined) return
    const progress = this.#measure()
    if (progress === undefined || progress !== this.#progress) {
      this.#progress = progress
      this.#progressedAt = now
      return
    }
    const ofResponse = this.#isDiscarding ? DISCARD_MS : idleTimeoutMs
    const limitMs = this.#response === undefined ? responseTimeoutMs : ofResponse
    if (now - this.#progressedAt < limitMs) return
    if (this.#isDiscarding) this.#close()
    else this.abort(attempt, attempt.isSent ? TOO_LATE : NOT_CONNECTED)
  }

  /** Grows with each progress of the exchange, from -1 before its request is sent. Undefined while the service has nothing to do. */
  #measure(): number | undefined {
    const socket = this.#socket
    if (this.#awaiting !== undefined) return undefined
    if (socket === undefined || this.attempt?.isSent !== true) return -1
    if (this.#isDiscarding) return 0
    if (this.#response !== undefined) return this.#isPaused ? undefined : this.#contentBytes
    // It has taken all that has come from the client.
    if (this.#content?.isOver === false && socket.writableLength === 0) return undefined
    return socket.bytesWritten - socket.writableLength
  }

  /** For so long, the service has owed the head of a response. Undefined if it owes none. `now` is running time. */
  silentMs(now: number): number | undefined {
    if (this.#response !== undefined || this.attempt?.isSent !== true) return undefined
    const progress = this.#measure()
    if (progress === undefined) return undefined
    return progress === this.#progress ? now - this.#progressedAt : 0
  }

  abort(attempt: Attempt, reason: Error): void {
    const isUnused = this.#awaiting === attempt && !this.#isClosed
    this.#awaiting = undefined
    if (isUnused) {
      this.#detach()
      this.#pool.returned(this)
    } else this.#close()
    attempt.holder = undefined
    attempt.sink.attemptFailed(attempt, reason)
  }

  /** Closes the connection. The attempt that it carries fails with `reason`, or goes elsewhere if it was not sent. */
  destroy(reason: Error = CLOSED): void {
    const isDiscarding = this.#isDiscarding
    const attempt = this.#detach()
    const isAwaiting = attempt !== undefined && attempt === this.#awaiting
    const isUnsent = !isAwaiting && attempt?.isReused === true && !attempt.isSent
    this.#close(isUnsent ? attempt : undefined)
    if (isAwaiting) attempt.holder = this
    else if (!isUnsent && !isDiscarding) attempt?.sink.attemptFailed(attempt, reason)
  }

  #detach(): Attempt | undefined {
    const { attempt } = this
    this.attempt = undefined
    if (attempt !== undefined) attempt.holder = undefined
    this.#content?.detach()
    this.#content = undefined
    this.#response = undefined
    this.#isDiscarding = false
    this.#isHeld = false
    return attempt
  }

  #close(unsent?: Attempt): void {
    this.#detach()
    this.#socket?.destroy()
    if (this.#isClosed) return
    this.#isClosed = true
    this.#rest = undefined
    this.#parser.stop()
    this.#cancelOpening()
    this.#pool.closed(this, unsent)
  }
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
