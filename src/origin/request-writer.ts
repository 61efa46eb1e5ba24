/** Writes requests to a connection: the head, and the content in one piece or as it comes from the client. */

import type { Socket } from 'node:net'
import { fieldLines } from '../http1/field-list.ts'
import { release } from '../node-internals.ts'
import type { Attempt, ContentSource, ContentWriter } from './attempt.ts'

/** Content up to this size is copied behind the head, into one write. Servers get it with the head, in one or two reads. */
const MAX_JOINED_BYTES = 8 * 1024

/** Methods whose requests state a length of zero, too (RFC 9110 §8.6). */
const STATES_LENGTH: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH', 'QUERY', 'PROPFIND', 'PROPPATCH'])

/** Returns the head of a request on the wire, in latin1 (RFC 9112 §3 and §6). `secretLines`: those of more fields. */
export function requestHeadText(attempt: Pick<Attempt, 'request' | 'content'>, secretLines = ''): string {
  const { method, target, fields, isHandshake } = attempt.request
  let text = `${method} ${target} HTTP/1.1\r\n${fieldLines(fields)}${secretLines}`
  if (isHandshake === true) return `${text}connection: upgrade\r\nupgrade: websocket\r\n\r\n`
  text += 'connection: keep-alive\r\n'
  if (attempt.content === undefined)
    return STATES_LENGTH.has(method) ? `${text}content-length: 0\r\n\r\n` : `${text}\r\n`
  const length = contentLengthOf(attempt)
  return length === undefined ? `${text}transfer-encoding: chunked\r\n\r\n` : `${text}content-length: ${length}\r\n\r\n`
}

function contentLengthOf({ content, request }: Pick<Attempt, 'request' | 'content'>): number | undefined {
  return Buffer.isBuffer(content) ? content.length : request.contentLength
}

/** True if the content is so small that servers read all of it with the head. */
export function isJoined(attempt: Attempt): boolean {
  return attempt.content === undefined || (contentLengthOf(attempt) ?? Number.POSITIVE_INFINITY) <= MAX_JOINED_BYTES
}

/** Takes the content from `attempt` if it is in memory: the socket has it then. Returns the content if it goes out in pieces. */
export function writeRequest(socket: Socket, attempt: Attempt, secretLines?: string): RequestContent | undefined {
  const { content, request } = attempt
  const head = requestHeadText(attempt, secretLines)
  if (!Buffer.isBuffer(content)) {
    socket.write(head, 'latin1')
    return content && new RequestContent(socket, content, request.contentLength === undefined)
  }
  attempt.content = undefined
  if (content.length <= MAX_JOINED_BYTES) socket.write(head + content.toString('latin1'), 'latin1')
  else {
    socket.cork()
    socket.write(head, 'latin1')
    socket.write(content)
    socket.uncork()
  }
  return undefined
}

/** The content of one request on its way to the socket. Frames it. */
export class RequestContent implements ContentWriter {
  readonly #socket: Socket
  readonly #source: ContentSource
  readonly #isChunked: boolean
  /** True once the last of the content has been handed to the socket, or `detach` was called. */
  isOver = false

  constructor(socket: Socket, source: ContentSource, isChunked: boolean) {
    this.#socket = socket
    this.#source = source
    this.#isChunked = isChunked
    source.streamTo(this)
  }

  write(chunk: Buffer, isOwned: boolean): boolean {
    if (this.isOver || chunk.length === 0) return true
    const socket = this.#socket
    if (this.#isChunked) {
      socket.cork()
      socket.write(`${chunk.length.toString(16)}\r\n`, 'latin1')
      socket.write(chunk)
      socket.write('\r\n', 'latin1')
      socket.uncork()
    } else socket.write(chunk)
    if (socket.writableLength > 0) return !socket.writableNeedDrain
    // The kernel has a copy of everything.
    if (isOwned) release(chunk)
    return true
  }

  end(): void {
    if (this.isOver) return
    this.isOver = true
    if (this.#isChunked) this.#socket.write('0\r\n\r\n', 'latin1')
  }

  /** The socket has room again. */
  resume(): void {
    if (!this.isOver) this.#source.resume()
  }

  /** The connection takes no more content. */
  detach(): void {
    if (this.isOver) return
    this.isOver = true
    this.#source.detach()
  }
}
