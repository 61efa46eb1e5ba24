import { describe, expect, test } from 'vitest'
import { ResponseHead } from '../../../src/gateway/response-head.ts'
import { fieldLines } from '../../../src/http1/field-list.ts'
import { fieldsOf, headOfResponse, UNCHANGED } from '../../support/received-response.ts'

const VARY = ['Vary', 'X-Org-Id']

/** The head for the client, with its fields. */
function withFields(...lines: string[]) {
  const head = headOfResponse('HTTP/1.1 200 OK', ...lines)
  return head && { hasDate: head.hasDate, contentLength: head.contentLength, fields: fieldsOf(head) }
}

/** Names and values in turn. */
function read(...fields: string[]) {
  return withFields(...Array.from({ length: fields.length / 2 }, (_, i) => `${fields[2 * i]}: ${fields[2 * i + 1]}`))
}

// `test/program/behaviour/response-fields.test.ts` sends those that pass, and those that are removed.
describe('the fields of a response', () => {
  test('lose the white space around their values', () => {
    const head = withFields('A:1', 'B: \t 2 3 \t', 'C:', 'D: \t', 'E:: 4')
    expect(head?.fields.join('|')).toBe('A|1|B|2 3|C||D||E|: 4|Vary|X-Org-Id')
  })

  test('state a length without leading zeros, which some clients read as octal', () => {
    expect(read('Content-Length', '0010')).toMatchObject({
      contentLength: 10,
      fields: ['Content-Length', '10', ...VARY],
    })
  })

  test.each([101, 204])('state no length behind a %i', (status) => {
    const received = {
      status,
      reason: '',
      minorVersion: 1 as const,
      isChunked: false,
      contentLength: 0,
      hasContent: false,
      keepsAlive: true,
      keepAliveSeconds: undefined,
    }
    const rawFields = ['Content-Length', '0', 'X', '1']
    const head = new ResponseHead({ ...received, rawFields, lines: fieldLines(rawFields) }, UNCHANGED)
    expect(fieldsOf(head).slice(0, 2)).toEqual(['X', '1'])
  })

  test('are named by tokens: a no-break space, as some libraries trim it, is part of what it stands beside', () => {
    const head = read('X', '1', 'Connection', 'x\u00a0, close\u00a0', 'Vary', 'x-org-id\u00a0')
    expect(head).toMatchObject({ fields: ['X', '1', 'Vary', 'x-org-id\u00a0, X-Org-Id'] })
  })

  test('show whether there is a Date, unless Connection names it', () => {
    const date = 'date: Tue, 15 Nov 1994 08:12:31 GMT'
    expect(withFields(date)).toMatchObject({ hasDate: true, fields: ['date', date.slice('date: '.length), ...VARY] })
    expect(withFields('X: 1')?.hasDate).toBe(false)
    expect(withFields(date, 'Connection: date')).toMatchObject({ hasDate: false, fields: VARY })
  })
})
