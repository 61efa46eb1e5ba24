/**
 * Reads HTTP/1.1 messages by RFC 9112, from a socket or from bytes, for both ends of a connection. It repairs nothing, so that
 * tests notice a proxy that forwards doubtful messages.
 */

import type { Socket } from 'node:net'
import { Changes } from './changes.ts'

/** How the peer's half of the connection ended. */
export type StreamEnd = 'fin' | 'reset'

export class StreamEnded extends Error {
  override readonly name = 'StreamEnded'
}

export class MalformedMessage extends Error {
  override readonly name = 'MalformedMessage'
}

/** More than this of one content or one connection is counted, but not kept. */
export const MAX_RECORDED_BYTES = 8 * 1024 * 1024
const LONGEST_TIMER_MS = 2 ** 31 - 1
const MAX_LINE_BYTES = 1024 * 1024

/** The bytes of one peer in order: by line, by count, or to the end. */
export class ByteReader {
  readonly changes: Changes = new Changes()
  receivedBytes = 0
  end: StreamEnd | undefined
  readonly #deadlineMs: number
  readonly #received: Buffer[] = []
  /** Joined only on demand, so that large content is copied once. */
  #chunks: Buffer[] = []
  #length = 0

  /** Each wait has the deadline. Reads as fast as bytes arrive, so that it sees an abort at once. */
  constructor(deadlineMs: number = LONGEST_TIMER_MS) {
    this.#deadlineMs = deadlineMs
  }

  static on(socket: Socket, deadlineMs?: number): ByteReader {
    const reader = new ByteReader(deadlineMs)
    socket.on('data', (chunk: Buffer) => reader.push(chunk))
    socket.on('end', () => reader.finish('fin'))
    for (const event of ['error', 'close']) socket.on(event, () => reader.finish('reset'))
    return reader
  }

  /** Bytes that are all there. A string is latin1: one character, one byte. */
  static of(text: string, end: StreamEnd = 'fin'): ByteReader {
    const reader = new ByteReader()
    reader.push(Buffer.from(text, 'latin1'))
    reader.finish(end)
    return reader
  }

  push(chunk: Buffer): void {
    if (this.receivedBytes < MAX_RECORDED_BYTES) this.#received.push(chunk)
    this.receivedBytes += chunk.length
    this.#chunks.push(chunk)
    this.#length += chunk.length
    this.changes.notify()
  }

  finish(end: StreamEnd): void {
    this.end ??= end
    this.changes.notify()
  }

  /** All bytes that arrived. */
  get received(): Buffer {
    return Buffer.concat(this.#received)
  }

  /** The bytes that arrived and were not taken yet. */
  get pending(): Buffer {
    if (this.#chunks.length > 1) this.#chunks = [Buffer.concat(this.#chunks, this.#length)]
    return this.#chunks[0] ?? Buffer.alloc(0)
  }

  /** Without its end, which must be CRLF. */
  async line(): Promise<string> {
    await this.#until(() => this.pending.includes('\n') || this.#length > MAX_LINE_BYTES, 'the end of a line')
    const line = this.take(this.pending.indexOf('\n') + 1).toString('latin1')
    if (!line.endsWith('\r\n')) throw new MalformedMessage(`a bare line feed behind ${JSON.stringify(line)}`)
    return line.slice(0, -2)
  }

  /** Between one byte and `limit`. */
  async some(limit: number): Promise<Buffer> {
    await this.#until(() => this.#length > 0, 'a byte')
    return this.take(Math.min(limit, this.#length))
  }

  async exactly(count: number): Promise<Buffer> {
    await this.#until(() => this.#length >= count, `${count} bytes`)
    return this.take(count)
  }

  /** Everything up to the end of the stream. */
  async toEnd(): Promise<Buffer> {
    await this.#until(() => this.end !== undefined, 'the end of the stream')
    return this.take(this.#length)
  }

  /** Of those that are pending. */
  take(count: number): Buffer {
    const { pending } = this
    this.#length -= count
    this.#chunks = this.#length === 0 ? [] : [pending.subarray(count)]
    return pending.subarray(0, count)
  }

  async #until(condition: () => boolean, what: string): Promise<void> {
    const soFar = () => `${what}; so far: ${JSON.stringify(this.pending.subarray(0, 300).toString('latin1'))}`
    await this.changes.until(() => condition() || this.end !== undefined, soFar, this.#deadlineMs)
    if (!condition()) throw new StreamEnded(`the connection ended before ${what}: ${this.end}`)
  }
}

/** Names and values in turn, unchanged, like `rawHeaders`. */
export type FieldList = readonly string[]

/** `strict`: messages as the proxy writes them. `lenient`: all that RFC 9112 lets a recipient accept. */
export type Grammar = 'strict' | 'lenient'

export type Framing = number | 'chunked' | 'until the end'

const REQUEST_LINE = {
  strict: /^([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e]+) HTTP\/1\.1$/,
  lenient: /^([!#$%&'*+.^_`|~0-9A-Za-z-]+) +([\x21-\x7e\x80-\xff]+) +HTTP\/1\.[01]$/,
}
const STATUS_LINE = {
  strict: /^(HTTP\/1\.[01]) (\d{3}) ([\t\x20-\x7e\x80-\xff]*)$/,
  lenient: /^(HTTP\/1\.[01]) (\d{3})(?: ([^\r\n]*))?$/,
}
const CHUNK_LINE = {
  strict: /^([0-9A-Fa-f]{1,12})$/,
  lenient: /^[ \t]*([0-9A-Fa-f]{1,16})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?$/,
}
const LENGTH = { strict: /^(0|[1-9]\d{0,14})$/, lenient: /^\d{1,15}$/ }
const FIELD_LINE =
  /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*((?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?)[ \t]*$/

export function valuesOf(fields: FieldList, name: string): string[] {
  return fields.filter((_, i) => i % 2 === 1 && fields[i - 1]?.toLowerCase() === name.toLowerCase())
}

export interface RequestHead {
  readonly method: string
  readonly target: string
  readonly fields: FieldList
  readonly framing: Framing
}

export async function readRequestHead(reader: ByteReader, grammar: Grammar = 'strict'): Promise<RequestHead> {
  const line = await reader.line()
  const [, method, target] = REQUEST_LINE[grammar].exec(line) ?? []
  if (method === undefined || target === undefined) throw new MalformedMessage(`request line ${JSON.stringify(line)}`)
  const fields = await readFields(reader)
  return { method, target, fields, framing: declaredFraming(fields, grammar) ?? 0 }
}

/** Passes on every piece of content as it arrives. Returns the trailer fields. */
export async function readRequestContent(
  reader: ByteReader,
  { framing }: RequestHead,
  onBytes: (bytes: Buffer) => void,
  grammar: Grammar = 'strict',
): Promise<FieldList> {
  const trailers = await readContent(reader, framing, onBytes, grammar)
  if (declaredFraming(trailers, grammar) !== undefined) throw new MalformedMessage('framing in a trailer')
  return trailers
}

export interface RawResponse {
  readonly status: number
  readonly reason: string
  readonly version: string
  readonly fields: FieldList
  readonly content: Buffer
  readonly trailers: FieldList
  /** False if the connection ended inside the message. */
  readonly isComplete: boolean
  /** The 1xx responses before it. */
  readonly informational: readonly RawResponse[]
}

/** The next final response. `method` is that of its request: an answer to HEAD has no content. */
export async function readResponse(reader: ByteReader, method: string, grammar?: Grammar): Promise<RawResponse> {
  const informational: RawResponse[] = []
  for (;;) {
    const response = await readAnyResponse(reader, method, grammar)
    if (response.status >= 200 || response.status === 101) return { ...response, informational }
    informational.push(response)
  }
}

/** One 1xx or final response, whichever comes first. */
export async function readAnyResponse(
  reader: ByteReader,
  method: string,
  grammar: Grammar = 'strict',
): Promise<RawResponse> {
  const line = await reader.line()
  const [, version = '', digits, reason = ''] = STATUS_LINE[grammar].exec(line) ?? []
  if (digits === undefined) throw new MalformedMessage(`status line ${JSON.stringify(line)}`)
  const status = Number(digits)
  const fields = await readFields(reader, grammar)
  const declared = status < 200 ? 0 : declaredFraming(fields, grammar)
  const hasNoContent = method === 'HEAD' || status < 200 || status === 204 || status === 304 // RFC 9112 §6.3
  const framing = hasNoContent ? 0 : (declared ?? 'until the end')
  const pieces: Buffer[] = []
  let trailers: FieldList = []
  let isComplete = true
  try {
    trailers = await readContent(reader, framing, (bytes) => pieces.push(bytes), grammar)
  } catch (error) {
    if (!(error instanceof StreamEnded)) throw error
    isComplete = false
  }
  if (framing === 'until the end' && reader.end === 'reset') isComplete = false
  return { status, reason, version, fields, content: Buffer.concat(pieces), trailers, isComplete, informational: [] }
}

/** Undefined without framing fields. Throws if they contradict each other or are unclear. */
function declaredFraming(fields: FieldList, grammar: Grammar): Framing | undefined {
  const codings = valuesOf(fields, 'transfer-encoding')
  const lengths = valuesOf(fields, 'content-length')
  if (codings.length + lengths.length > 1) throw new MalformedMessage('more than one framing field')
  const [coding] = codings
  const [length] = lengths
  if (coding !== undefined && coding.toLowerCase() !== 'chunked') throw new MalformedMessage(`coding ${coding}`)
  if (coding !== undefined) return 'chunked'
  if (length === undefined) return undefined
  if (!LENGTH[grammar].test(length)) throw new MalformedMessage(`length ${JSON.stringify(length)}`)
  return Number(length)
}

async function readContent(
  reader: ByteReader,
  framing: Framing,
  onBytes: (bytes: Buffer) => void,
  grammar: Grammar,
): Promise<FieldList> {
  if (framing === 'chunked') return await readChunks(reader, onBytes, grammar)
  if (framing === 'until the end') onBytes(await reader.toEnd())
  else await readCounted(reader, framing, onBytes)
  return []
}

async function readChunks(reader: ByteReader, onBytes: (bytes: Buffer) => void, grammar: Grammar): Promise<FieldList> {
  for (;;) {
    const line = await reader.line()
    const [, digits] = CHUNK_LINE[grammar].exec(line) ?? []
    if (digits === undefined) throw new MalformedMessage(`chunk size ${JSON.stringify(line)}`)
    const bytes = Number.parseInt(digits, 16)
    if (bytes === 0) return await readFields(reader)
    await readCounted(reader, bytes, onBytes)
    if ((await reader.exactly(2)).toString('latin1') !== '\r\n') throw new MalformedMessage('no CRLF behind a chunk')
  }
}

async function readCounted(reader: ByteReader, count: number, onBytes: (bytes: Buffer) => void): Promise<void> {
  for (let left = count; left > 0; ) {
    const bytes = await reader.some(left)
    left -= bytes.length
    onBytes(bytes)
  }
}

/** `lenient`: of a response, whose blanks before a colon a recipient takes out (RFC 9112 §5.1). */
async function readFields(reader: ByteReader, grammar: Grammar = 'strict'): Promise<string[]> {
  const fields: string[] = []
  for (;;) {
    const read = await reader.line()
    const line = grammar === 'lenient' ? read.replace(/^([^\s:]+)[ \t]+:/, '$1:') : read
    if (line === '') return fields
    const [, name, value] = FIELD_LINE.exec(line) ?? []
    if (name === undefined || value === undefined) throw new MalformedMessage(`field line ${JSON.stringify(line)}`)
    fields.push(name, value)
  }
}
