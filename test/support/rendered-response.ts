/** Random responses of an origin: their meaning, and their bytes. */

import fc from 'fast-check'

export type Framing = 'none' | 'counted' | 'chunked' | 'until the end'

export interface RenderedResponse {
  readonly isHead: boolean
  readonly status: number
  /** The part that reaches the client. */
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

const blanks = fc.tuple(string([' ', '\t'], 0, 2), string([' ', '\t'], 0, 2))

const chunkLook = fc.record({
  isUpperCase: fc.boolean(),
  zeros: fc.integer({ min: 0, max: 3 }),
  extension: fc.constantFrom('', ';', ';a', ';a=b', '; a="b;c" ', ';\xe9\t'),
  octets: fc.integer({ min: 1, max: 60 }),
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
    const length: readonly [string, string] = ['Content-Length', `${made.content.length}`]
    const lines: (readonly [string, string])[] = [...made.fields]
    if (made.declared === 'counted') lines.splice(made.place % (lines.length + 1), 0, length)
    const goesOn = lines.flat()
    if (made.declared === 'chunked') lines.splice(made.place % (lines.length + 1), 0, ['transfer-encoding', 'Chunked'])
    const head = renderHead(`${made.status} ${made.reason}`, lines, made.blanks)
    const written = framing === 'chunked' ? renderChunks(made.content, made.chunkLooks, made.trailers) : made.content
    return {
      isHead: made.isHead,
      status: made.status,
      fields: goesOn,
      framing,
      content: isEmpty ? Buffer.alloc(0) : made.content,
      bytes: Buffer.concat([...made.interims, head, ...(isEmpty ? [] : [written])]),
    }
  })

function renderHead(
  line: string,
  fields: readonly (readonly [string, string])[],
  [before, behind]: readonly [string, string],
): Buffer {
  const lines = fields.map(([name, value]) => `${name}:${before}${value}${behind}\r\n`)
  return Buffer.from(`HTTP/1.1 ${line}\r\n${lines.join('')}\r\n`, 'latin1')
}

interface ChunkLook {
  readonly isUpperCase: boolean
  readonly zeros: number
  readonly extension: string
  readonly octets: number
}

function renderChunks(
  content: Buffer,
  looks: readonly ChunkLook[],
  trailers: readonly (readonly [string, string])[],
): Buffer {
  const pieces: Buffer[] = []
  for (let at = 0, i = 0; ; i++) {
    const { isUpperCase, zeros, extension, octets } = looks[i % looks.length] as ChunkLook
    const chunk = content.subarray(at, at + octets)
    const digits = '0'.repeat(zeros) + chunk.length.toString(16)
    pieces.push(Buffer.from(`${isUpperCase ? digits.toUpperCase() : digits}${extension}\r\n`, 'latin1'))
    if (chunk.length === 0) break
    pieces.push(chunk, Buffer.from('\r\n'))
    at += chunk.length
  }
  const last = trailers.map(([name, value]) => `${name}: ${value}\r\n`)
  return Buffer.concat([...pieces, Buffer.from(`${last.join('')}\r\n`, 'latin1')])
}
