import { describe, expect, test } from 'vitest'
import { OriginError } from '../../src/errors.ts'
import { type ResponseEvents, ResponseParser } from '../../src/origin/response-parser.ts'
import { fc } from '../support/properties.ts'
import { renderedResponse } from '../support/rendered-response.ts'

const RUNS = { numRuns: 1_000 }

interface Read {
  /** The events, in order. Pieces of content are joined. */
  readonly told: readonly string[]
  readonly fields: readonly string[] | undefined
  readonly content: string
  readonly isClean: boolean | undefined
  readonly error: OriginError | undefined
}

/** Reads the bytes in pieces that end at `cuts`, each in a buffer that is overwritten after it. */
function read(bytes: Buffer | string, cuts: readonly number[] = [], isHead = false, hasEnded = false): Read {
  const all = typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes
  const told: string[] = []
  let fields: readonly string[] | undefined
  let content = ''
  let isClean: boolean | undefined
  let error: OriginError | undefined
  const tell = (what: string) => {
    if (told.at(-1) !== what) told.push(what)
  }
  const events: ResponseEvents = {
    protocolSwitched: () => tell('switched'),
    responseHead: (head) => {
      told.push(`head ${head.status}`)
      fields = head.fields
    },
    responseContent: (octets, start, end) => {
      expect(start).toBeLessThan(end)
      tell('content')
      content += octets.toString('latin1', start, end)
    },
    responseEnd: (clean) => {
      told.push('end')
      isClean = clean
    },
  }
  const parser = new ResponseParser(events)
  parser.expect(isHead)
  const ends = [...new Set(cuts.map((cut) => cut % (all.length + 1)))].toSorted((a, b) => a - b)
  try {
    for (const [i, end] of [...ends, all.length].entries()) {
      const piece = all.subarray(i === 0 ? 0 : ends[i - 1], end)
      // The bytes after a piece in a reused buffer do not belong to it.
      const buffer = Buffer.concat([piece, Buffer.from('\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n')])
      parser.read(buffer, piece.length)
      buffer.fill('!')
    }
    if (hasEnded) expect(parser.finish()).toBe(told.at(-1) === 'end' && isClean === false)
  } catch (cause) {
    if (!(cause instanceof OriginError)) throw cause
    error = cause
  }
  return { told, fields, content, isClean, error }
}

const cuts = fc.array(fc.nat(2_000), { maxLength: 12 })
const everywhere = ({ length }: Buffer | string) => Array.from({ length }, (_, i) => i)
const OK = 'HTTP/1.1 200 OK\r\n'
const CHUNKED = `${OK}Transfer-Encoding: chunked\r\n\r\n`

describe('any response', () => {
  test('is read correctly, however it is sliced', () => {
    const property = fc.property(renderedResponse, cuts, (response, at) => {
      const { bytes, isHead, framing } = response
      const endsWithConnection = framing === 'until the end'
      for (const given of [[], at, everywhere(bytes)]) {
        const seen = read(bytes, given, isHead, endsWithConnection)
        expect(seen).toEqual({
          told: [`head ${response.status}`, ...(response.content.length > 0 ? ['content'] : []), 'end'],
          fields: response.fields,
          content: response.content.toString('latin1'),
          isClean: !endsWithConnection,
          error: undefined,
        })
      }
    })
    fc.assert(property, RUNS)
  })

  test('with bytes after it is not clean', () => {
    const behind = fc.uint8Array({ minLength: 1, maxLength: 50 })
    const framed = renderedResponse.filter(({ framing }) => framing !== 'until the end')
    const property = fc.property(framed, behind, cuts, (response, more, at) => {
      const bytes = Buffer.concat([response.bytes, more])
      const early = at.map((cut) => cut % response.bytes.length)
      for (const given of [[], early]) {
        const seen = read(bytes, given, response.isHead)
        expect(seen).toMatchObject({ isClean: false, error: undefined })
        expect(seen.content).toBe(response.content.toString('latin1'))
      }
    })
    fc.assert(property, RUNS)
  })

  test('that is cut has no end, unless it ends with its connection', () => {
    const property = fc.property(renderedResponse, fc.nat(), cuts, (response, cut, at) => {
      const bytes = response.bytes.subarray(0, cut % response.bytes.length)
      const seen = read(bytes, at, response.isHead, true)
      expect(seen.error).toBeUndefined()
      if (response.framing !== 'until the end' || seen.fields === undefined) expect(seen.told).not.toContain('end')
      expect(response.content.toString('latin1').startsWith(seen.content)).toBe(true)
    })
    fc.assert(property, RUNS)
  })

  test('that is damaged is refused, or read in one way only, however it is sliced', () => {
    const damage = fc.record({ at: fc.nat(), drops: fc.nat(3), adds: fc.uint8Array({ maxLength: 3 }) })
    const odd = fc.constantFrom(
      '\r',
      '\n',
      '\r\n',
      ' ',
      ':',
      '0',
      '\0',
      'HTTP/1.1 200 OK\r\n\r\n',
      'Content-Length: 3\r\n',
    )
    const oddity = fc.record({ at: fc.nat(), drops: fc.nat(2), adds: odd.map((text) => Buffer.from(text, 'latin1')) })
    const damages = fc.array(fc.oneof(damage, oddity), { minLength: 1, maxLength: 3 })
    const counts = { refused: 0, read: 0 }
    const property = fc.property(renderedResponse, damages, cuts, ({ bytes, isHead }, list, at) => {
      let damaged = bytes
      for (const { at: place, drops, adds } of list) {
        const where = place % (damaged.length + 1)
        damaged = Buffer.concat([damaged.subarray(0, where), adds, damaged.subarray(where + drops)])
      }
      const whole = read(damaged, [], isHead)
      for (const given of [at, everywhere(damaged)]) {
        const seen = read(damaged, given, isHead)
        expect(seen).toMatchObject({ told: whole.told, fields: whole.fields, content: whole.content })
        expect(seen.error?.code).toBe(whole.error?.code)
      }
      if (whole.error !== undefined) expect(whole.told).not.toContain('end')
      counts[whole.error === undefined ? 'read' : 'refused']++
    })
    fc.assert(property, RUNS)
    expect(Math.min(counts.read, counts.refused)).toBeGreaterThan(50)
  })

  test('even of random bytes throws only our errors', () => {
    const noise = fc.uint8Array({ maxLength: 400 }).map((octets) => Buffer.from(octets))
    const starts = fc.constantFrom(
      '',
      'HTTP/1.1 ',
      OK,
      `${OK}Content-Length: 7\r\n\r\n`,
      CHUNKED,
      `${CHUNKED}5\r\nhello`,
    )
    const property = fc.property(starts, noise, cuts, (start, rest, at) => {
      read(Buffer.concat([Buffer.from(start), rest]), at)
    })
    fc.assert(property, RUNS)
  })
})

describe('interim responses', () => {
  const interim = (count: number) =>
    Array.from({ length: count }, (_, i) => `HTTP/1.1 10${i % 2 === 0 ? 0 : 3} x\r\nA: b\r\n\r\n`)

  // RFC 9110 §15.2: any number of them may come. The time limits end a service that sends nothing else.
  test('are skipped, however many come', () => {
    const bytes = `${interim(300).join('')}${OK}Content-Length: 2\r\n\r\nok`
    expect(read(bytes)).toMatchObject({ told: ['head 200', 'content', 'end'], content: 'ok', isClean: true })
  })

  test.each(['100', '103'])('that are malformed are refused: %s', (status) => {
    expect(read(`HTTP/1.1 ${status} x\r\nA b\r\n\r\n${OK}Content-Length: 0\r\n\r\n`).error).toBeDefined()
  })

  test.each(['600 x', '999 x'])('%s is not an answer to our requests', (line) => {
    const { error, told } = read(`HTTP/1.1 ${line}\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n`)
    expect(error).toMatchObject({ code: 'http_protocol_error', reason: 'bad_status_line' })
    expect(told).toEqual([])
  })
})

describe('the head', () => {
  const sized = (length: number) => `${OK}X: ${'x'.repeat(length - OK.length - 'X: '.length)}\r\n\r\n`

  test('may have 64 KiB, however it is sliced', () => {
    const bytes = sized(64 * 1024)
    for (const at of [[], everywhere(bytes).slice(-5), [4_096]]) expect(read(bytes, at).error).toBeUndefined()
  })

  test('may not have one octet more', () => {
    const bytes = sized(64 * 1024 + 1)
    for (const at of [[], everywhere(bytes).slice(-5), [4_096]]) expect(read(bytes, at).told).toEqual([])
    expect(read(bytes).error?.code).toBe('http_protocol_error')
  })

  test('without an end is refused before it is larger', () => {
    expect(read(sized(64 * 1024 + 8).slice(0, -4)).error?.code).toBe('http_protocol_error')
  })

  test.each([
    ['throughout', 'HTTP/1.1 200 OK\nContent-Length: 2\n\nok'],
    ['behind the status line', 'HTTP/1.1 200 OK\nContent-Length: 2\r\n'],
    ['behind a field', `${OK}Content-Length: 2\nX: y\r\n`],
    ['at its end', `${OK}Content-Length: 2\r\n\n`],
  ])('with a bare line feed %s is refused without waiting for its end', (_, text) => {
    for (const at of [[], everywhere(text)]) {
      expect(read(text, at)).toMatchObject({ told: [], error: { code: 'http_protocol_error' } })
    }
  })

  test.each(['hello', 'h', '\r\n', 'HTTP/2', 'SSH-2.0-x\r\n', '\x15\x03\x01'])(
    'that is malformed is refused at once: %j',
    (bytes) => {
      expect(read(bytes).error?.code).toBe('http_protocol_error')
    },
  )
})

describe('the chunked coding', () => {
  /** At once, and octet by octet. */
  const readBothWays = (chunks: string) => {
    const bytes = CHUNKED + chunks
    return [read(bytes), read(bytes, everywhere(bytes))]
  }
  const expectRefused = (chunks: string) => {
    for (const { error, told } of readBothWays(chunks)) {
      expect(error?.code).toBe('http_protocol_error')
      expect(told).not.toContain('end')
    }
  }

  test.each([
    ['a size padded with zeros to 16 digits', `${'1'.padStart(16, '0')}\r\na\r\n${'0'.repeat(16)}\r\n\r\n`, 'a'],
    ['blanks before an extension', '1 ; a=b\r\na\r\n1\t;c\r\nb\r\n0 ;last\r\n\r\n', 'ab'],
    ['line ends as content', '4\r\n\r\n\r\n\r\n0\r\n\r\n', '\r\n\r\n'],
    ['trailers', '1\r\na\r\n0\r\nContent-Length: 9\r\nAuthorization: x\r\n\r\n', 'a'],
  ])('is read: %s', (_, chunks, content) => {
    for (const seen of readBothWays(chunks)) expect(seen).toMatchObject({ content, isClean: true, error: undefined })
  })

  test.each([
    ['a size that is none', 'x\r\n'],
    ['no size', '\r\n'],
    ['a sign', '+1\r\na\r\n'],
    ['a negative size', '-1\r\n'],
    ['a prefix', '0x1\r\na\r\n'],
    ['a space before the size', ' 1\r\na\r\n'],
    ['a space behind the size', '1 \r\na\r\n'],
    ['a tab behind the size', '1\t\r\na\r\n'],
    ['an underscore', '1_0\r\n'],
    ['a size beyond all numbers', `${'f'.repeat(14)}\r\n`],
    ['a size of zeros beyond all bounds', `${'0'.repeat(40)}\r\n`],
    ['a line feed alone behind the size', '1\na\r\n0\r\n\r\n'],
    ['a carriage return alone behind the size', '1\ra\r\n'],
    ['two carriage returns', '1\r\r\na\r\n'],
    ['a control in an extension', '1;a\u0000\r\na\r\n'],
    ['a line feed in an extension', '1;a\nb\r\n'],
    ['a carriage return in an extension', '1;a\rb\r\na\r\n'],
    ['more content than the size says', '1\r\nab'],
    ['less content than the size says', '2\r\na\r\n0\r\n\r\n'],
    ['a line feed alone behind the content', '1\r\na\n'],
    ['a carriage return alone behind the content', '1\r\na\rb'],
    ['a trailer that is no field', '0\r\nx\r\n'],
    ['a trailer without a name', '0\r\n: x\r\n'],
    ['a trailer with a space before its colon', '0\r\nx : y\r\n'],
    ['a folded trailer', '0\r\nx: y\r\n z\r\n'],
    ['a control in a trailer', '0\r\nx: \u0000\r\n'],
    ['a line feed alone behind a trailer', '0\r\nx: y\n\r\n'],
    ['a line feed alone behind it all', '0\r\n\n'],
  ])('is refused if it is malformed: %s', (_, chunks) => {
    expectRefused(chunks)
  })

  const line = (octets: number) => `1;${'x'.repeat(octets - '1;\r\n'.length)}\r\n`

  test.each([
    ['a line of 4 KiB', `${line(4096)}a\r\n`, 'a'],
    ['a chunk of 2^52 - 1 octets', 'fffffffffffff\r\nabc', 'abc'],
  ])('may have %s', (_, chunks, content) => {
    for (const seen of readBothWays(chunks)) expect(seen).toMatchObject({ content, error: undefined })
  })

  test.each([
    ['a longer line', line(4097)],
    ['a longer line without an end', line(5000).slice(0, -2)],
  ])('may not have %s', (_, chunks) => {
    expectRefused(chunks)
  })
})

test('content after an abort is not reported', () => {
  let pieces = 0
  const parser: ResponseParser = new ResponseParser({
    responseHead: () => {},
    protocolSwitched: () => {},
    responseContent: () => {
      pieces++
      parser.stop()
    },
    responseEnd: () => {
      throw new Error('an end of what was given up')
    },
  })
  const bytes = Buffer.from(`${OK}Content-Length: 2\r\n\r\nok`)
  parser.expect(false)
  parser.read(bytes, bytes.length)
  expect(pieces).toBe(1)
  expect(parser.finish()).toBe(false)
})
