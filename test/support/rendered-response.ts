/** Random responses of a service: their meaning, and their bytes. */

import fc from 'fast-check'

export type Framing = 'none' | 'counted' | 'chunked' | 'until the end'

export interface RenderedResponse {
  readonly isHead: boolean
  readonly status: number
  readonly reason: string
  /** Names and values in turn. */
  readonly fields: readonly string[]
  readonly framing: Framing
  readonly content: Buffer
  readonly bytes: Buffer
}

const TCHAR = [..."!#$%&'*+-.^_`|~0189azAZ"]
const FIELD_CHAR = [...'\t !"#:;,=%/()09azAZ~\x80\xe9\xff']

const string = (characters: readonly string[], minLength: number, maxLength: number) =>
  fc.string({ unit: fc.constantFrom(...characters), minLength, maxLength })

/** With a prefix, so that none means anything to the proxy. */
const field = fc.tuple(
  string(TCHAR, 0, 12).map((name) => `X${name}`),
  string(FIELD_CHAR, 0, 30).map((value) => value.replace(/^[\t ]+|[\t ]+$/g, '')),
)

const interim = fc
  .tuple(fc.constantFrom('100 Continue', '102', '103 Early Hints', '199 '), fc.array(field, { maxLength: 2 }))
  .map(([line, fields]) => renderHead(line, fields, ['', '']))

// A tab behind a length or a coding is refused.
const blanks = fc.tuple(string([' ', '\t'], 0, 2), string([' '], 0, 2))

const chunkLook = fc
  .tuple(fc.integer({ min: 0, max: 3 }), fc.constantFrom('', ' ', ';a', ';a=b', '\t ;a="b;\\"\xe9\t";c'), fc.nat(59))
  .map(([zeros, extension, more]): ChunkLook => {
    const digits = (octets: number) => '0'.repeat(zeros) + octets.toString(16)
    const size = (octets: number) => (more % 2 === 0 ? digits(octets) : digits(octets).toUpperCase()) + extension
    return { size, octets: more + 1 }
  })

export const renderedResponse: fc.Arbitrary<RenderedResponse> = fc
  .record({
    isHead: fc.constantFrom(false, false, false, true),
    status: fc.constantFrom(200, 200, 200, 204, 304, 404, 599),
    reason: string(FIELD_CHAR, 0, 10),
    interims: fc.array(interim, { maxLength: 3 }),
    fields: fc.array(field, { maxLength: 5 }),
    blanks,
    declared: fc.constantFrom<Framing>('counted', 'chunked', 'until the end'),
    place: fc.nat(),
    content: fc.uint8Array({ maxLength: 300 }).map((octets) => Buffer.from(octets)),
    chunkLooks: fc.array(chunkLook, { minLength: 1, maxLength: 5 }),
    trailers: fc.array(field, { maxLength: 2 }),
  })
  .map((made) => {
    const isEmpty = made.isHead || made.status === 204 || made.status === 304
    const framing = isEmpty ? 'none' : made.declared
    const lines: Field[] = [...made.fields]
    const length = `${made.content.length}`
    if (made.declared === 'counted') lines.splice(made.place % (lines.length + 1), 0, ['Content-Length', length])
    if (made.declared === 'chunked') lines.splice(made.place % (lines.length + 1), 0, ['transfer-encoding', 'Chunked'])
    const head = renderHead(`${made.status} ${made.reason}`, lines, made.blanks)
    const written = framing === 'chunked' ? renderChunks(made.content, made.chunkLooks, made.trailers) : made.content
    return {
      isHead: made.isHead,
      status: made.status,
      reason: made.reason,
      fields: lines.flat(),
      framing,
      content: isEmpty ? Buffer.alloc(0) : made.content,
      bytes: Buffer.concat([...made.interims, head, ...(isEmpty ? [] : [written])]),
    }
  })

type Field = readonly [string, string]

function renderHead(line: string, fields: readonly Field[], [before, behind]: Field): Buffer {
  const lines = fields.map(([name, value]) => `${name}:${before}${value}${behind}\r\n`)
  return Buffer.from(`HTTP/1.1 ${line}\r\n${lines.join('')}\r\n`, 'latin1')
}

interface ChunkLook {
  readonly size: (octets: number) => string
  readonly octets: number
}

function renderChunks(content: Buffer, looks: readonly ChunkLook[], trailers: readonly Field[]): Buffer {
  const pieces: Buffer[] = []
  for (let at = 0, i = 0; ; i++) {
    const { size, octets } = looks[i % looks.length] as ChunkLook
    const chunk = content.subarray(at, at + octets)
    pieces.push(Buffer.from(`${size(chunk.length)}\r\n`, 'latin1'))
    if (chunk.length === 0) break
    pieces.push(chunk, Buffer.from('\r\n'))
    at += chunk.length
  }
  const last = trailers.map(([name, value]) => `${name}: ${value}\r\n`)
  return Buffer.concat([...pieces, Buffer.from(`${last.join('')}\r\n`, 'latin1')])
}
