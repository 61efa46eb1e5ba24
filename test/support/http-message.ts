/**
 * Reads HTTP/1.1 messages strictly by RFC 9112, for both ends of a connection. It repairs nothing, so that tests notice a
 * proxy that forwards doubtful messages.
 */

import type { ByteReader } from './byte-reader.ts'

export class MalformedMessage extends Error {
  override readonly name = 'MalformedMessage'
}

/** Names and values in turn, unchanged, like `rawHeaders`. */
export type FieldList = readonly string[]

export interface MessageHead {
  readonly startLine: string
  readonly fields: FieldList
}

export type Framing =
  | { readonly kind: 'none' }
  | { readonly kind: 'length'; readonly bytes: number }
  | { readonly kind: 'chunked' }
  | { readonly kind: 'until-close' }

const FIELD_LINE =
  /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*((?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?)[ \t]*$/
const CHUNK_SIZE = /^[0-9A-Fa-f]{1,12}$/

export async function readHead(reader: ByteReader): Promise<MessageHead> {
  const startLine = await readLine(reader)
  return { startLine, fields: await readFields(reader) }
}

export function valuesOf(fields: FieldList, name: string): string[] {
  return fields.filter((_, i) => i % 2 === 1 && fields[i - 1]?.toLowerCase() === name.toLowerCase())
}

/** The framing, or undefined without framing fields. Throws if they contradict each other or are unclear. */
export function declaredFraming(fields: FieldList): Framing | undefined {
  const codings = valuesOf(fields, 'transfer-encoding')
  const lengths = valuesOf(fields, 'content-length')
  if (codings.length + lengths.length > 1) throw new MalformedMessage('more than one framing field')
  const [coding] = codings
  const [length] = lengths
  if (coding !== undefined && coding.toLowerCase() !== 'chunked') throw new MalformedMessage(`coding ${coding}`)
  if (coding !== undefined) return { kind: 'chunked' }
  if (length === undefined) return undefined
  if (!/^(0|[1-9]\d{0,14})$/.test(length)) throw new MalformedMessage(`length ${JSON.stringify(length)}`)
  return { kind: 'length', bytes: Number(length) }
}

/** Passes on every piece of content as it arrives. Returns the trailer fields. */
export async function readContent(
  reader: ByteReader,
  framing: Framing,
  onBytes: (bytes: Buffer) => void,
): Promise<FieldList> {
  switch (framing.kind) {
    case 'none':
      return []
    case 'length':
      await readCounted(reader, framing.bytes, onBytes)
      return []
    case 'until-close':
      onBytes(await reader.toEnd())
      return []
    case 'chunked':
      return readChunks(reader, onBytes)
  }
}

async function readChunks(reader: ByteReader, onBytes: (bytes: Buffer) => void): Promise<FieldList> {
  for (;;) {
    const size = await readLine(reader)
    if (!CHUNK_SIZE.test(size)) throw new MalformedMessage(`chunk size ${JSON.stringify(size)}`)
    const bytes = Number.parseInt(size, 16)
    if (bytes === 0) return readFields(reader)
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

async function readFields(reader: ByteReader): Promise<string[]> {
  const fields: string[] = []
  for (;;) {
    const line = await readLine(reader)
    if (line === '') return fields
    const [, name, value] = FIELD_LINE.exec(line) ?? []
    if (name === undefined || value === undefined) throw new MalformedMessage(`field line ${JSON.stringify(line)}`)
    fields.push(name, value)
  }
}

async function readLine(reader: ByteReader): Promise<string> {
  const line = await reader.line()
  if (!line.endsWith('\r\n')) throw new MalformedMessage(`a bare line feed behind ${JSON.stringify(line)}`)
  return line.slice(0, -2)
}
