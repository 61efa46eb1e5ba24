/**
 * The attack: a head so large, or with so many fields, that a parser silently drops its end (Node 20 keeps about 1,000
 * fields), and with it the length of the content or the Org. Or the head fills the memory.
 */

import { describe, expect, test } from 'vitest'
import { get, HOST, head, ORG, startTable } from '../support/case-table.ts'
import { problemOf } from '../support/raw-client.ts'

const table = await startTable()

const tiny = (count: number) => Array.from({ length: count }, (_, i) => `a${i}:`)

test.each([1_001, 4_000])('%i tiny fields, the Org and the length last', async (count) => {
  const smuggled = get('/v2/smuggled', 'acme')
  const send = head('POST /v2/x HTTP/1.1', ...tiny(count), HOST, ORG, `Content-Length: ${smuggled.length}`) + smuggled
  await table.run({ send, status: 431, code: 'request_head_too_large', closes: true })
})

const many = Array.from({ length: 17 }, (_, i) => `f${i}: ${'a'.repeat(1000)}`)
const LARGE = {
  'a head of more than 16 KiB': get('/v2/x', '{org}', ...many),
  'a target of 17 KB': get(`/v2/${'a'.repeat(17_000)}`, '{org}'),
}
table.refuses(LARGE, 431, 'request_head_too_large', {
  closes: true,
  also: ({ response }) => expect(problemOf(response)['detail']).toContain('listen.maxHeadSize'),
})

describe('listen.maxHeadSize', async () => {
  const larger = await startTable({ 'listen.maxHeadSize': '64KiB' })
  const sized = (bytes: number) => {
    const rest = get('/v2/x?', '{org}').length - '{org}'.length + 'org-1'.length
    return get(`/v2/x?${'q'.repeat(bytes - rest)}`, '{org}')
  }

  test('a query of 64 KiB less the rest is forwarded', () => larger.run({ send: sized(64 * 1024) }))
  test('one octet more is refused', () =>
    larger.run({ send: sized(64 * 1024 + 1), status: 431, code: 'request_head_too_large', closes: true }))
})

test('a head below the limit is forwarded completely', () => {
  const fields = Array.from({ length: 150 }, (_, i) => `f${i}: ${'a'.repeat(90)}`)
  return table.run({
    send: get('/v2/x', '{org}', ...fields),
    also: ({ requests }) =>
      expect(
        requests[0]?.fields.filter((_, i) => i % 2 === 0 && /^f\d/.test(requests[0]?.fields[i] ?? '')),
      ).toHaveLength(150),
  })
})
