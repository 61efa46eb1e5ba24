/** Lines of the log: for people, sampled, and of requests. */

import { expect, test } from 'vitest'
import { Log } from '../../../src/app/log.ts'
import { eventually } from '../../support/changes.ts'
import { record } from '../admin/records.ts'

function started(sample = 1, format: 'json' | 'pretty' = 'json') {
  const lines: string[] = []
  const destination = { write: (text: string) => void lines.push(text) }
  const log = new Log({ level: 'info', requests: 'all', sample, format, destination })
  return { log, lines, logged: () => lines.map((text): Record<string, unknown> => JSON.parse(text)) }
}

test('in a line for people, values are JSON, so that their ends are clear', () => {
  const { log, lines } = started(1, 'pretty')
  const texts = { plain: 'a/b:c', spaced: 'a b', empty: '', quote: 'a"b', pair: 'a=b', feed: 'a\nb' }
  log.logger.warn({ ...texts, number: 1, list: ['a'] }, 'it happened')
  expect(lines.join('').slice('08:09:10.123'.length)).toBe(
    ' WARN  it happened plain="a/b:c" spaced="a b" empty="" quote="a\\"b" pair="a=b" feed="a\\nb" number=1 list=["a"]\n',
  )
})

test('the volume can be changed while the program runs', () => {
  const { log, logged } = started()
  log.logger.info('first')
  log.use({ log: { level: 'error', requests: 'all', sample: 1 } })
  log.logger.info('second')
  log.logger.error('third')
  expect(logged().map(({ msg }) => msg)).toEqual(['first', 'third'])
})

test('log.sample is the same share for an Org with few requests as for one with many', () => {
  const { log, logged } = started(0.25)
  for (let i = 0; i < 22_000; i++) log.request(record({ orgId: i % 11 === 0 ? 'quiet' : 'busy' }))
  const linesOf = (org: string) => logged().filter(({ orgId }) => orgId === org).length
  expect(linesOf('quiet') / 2_000).toBeCloseTo(0.25, 1)
  expect(linesOf('busy') / 20_000).toBeCloseTo(0.25, 1)
})

test('log.sample leaves out a share of the successes, and no error', () => {
  const { log, logged } = started(0.25)
  for (let i = 0; i < 2_000; i++) {
    log.request(record({ path: '/good' }))
    if (i % 20 === 0) log.request(record({ status: 404, path: '/missing' }))
    if (i % 20 === 0) log.request(record({ status: 403, code: 'caller_refused', path: '/refused' }))
  }
  const count = (path: string) => logged().filter((line) => line['path'] === path).length
  expect([count('/missing'), count('/refused')]).toEqual([100, 100])
  expect(count('/good')).toBeGreaterThan(400)
  expect(count('/good')).toBeLessThan(600)
})

test('the 401 of an upload that was not kept says so', () => {
  const { log, logged } = started()
  log.request(record({ status: 401, rejection: 'not_kept' }))
  log.request(record({ status: 401, rejection: 'passed' }))
  expect(logged().map(({ reason }) => reason)).toEqual(['content not kept: see replay.maxBody', undefined])
})

/** The attack: one client without a credential writes 44 MB of log in a second, with long paths. */
test('a flood of refusals has 100 lines in a second, and the first of each code; the rest is counted and told', async () => {
  const { log, logged } = started(0.01)
  const refusal = { isAdmitted: false, status: 403, code: 'caller_refused', path: `/${'x'.repeat(8_000)}` } as const
  for (let i = 0; i < 1_000; i++) log.request(record({ ...refusal, endedAt: 1_000 + i / 10 }))
  log.request(record({ ...refusal, code: 'org_id_missing', status: 400, endedAt: 1_200 }))
  log.request(record({ status: 502, code: 'dns_error', endedAt: 1_200 })) // of an admitted request
  log.request(record({ ...refusal, endedAt: 2_000, path: '/next-second' }))
  await log.flush()
  const count = (code: string) => logged().filter((line) => line['code'] === code).length
  expect([count('caller_refused'), count('org_id_missing'), count('dns_error')]).toEqual([101, 1, 1])
  expect(logged().at(-1)).toMatchObject({ level: 'warn', msg: 'lines of refused requests left out', lines: 900 })
  expect(log.omittedLines).toBe(900)
  expect(logged()[0]?.['path']).toHaveLength(1_024)
  expect(logged().at(-2)).toMatchObject({ path: '/next-second' })
})

test('errors of admitted requests always have a line', () => {
  const { log, lines } = started(0.01)
  for (let i = 0; i < 1_000; i++) log.request(record({ status: 404 }))
  for (let i = 0; i < 1_000; i++) log.request(record({ status: 502, code: 'connection_refused' }))
  expect(lines).toHaveLength(2_000)
})

test('the lines that were left out are told within a second or so, without another request', async () => {
  const { log, logged } = started()
  for (let i = 0; i < 150; i++) log.request(record({ isAdmitted: false, status: 403, code: 'caller_refused' }))
  await eventually(
    () => logged().some(({ msg, lines }) => msg?.toString().includes('left out') && lines === 50),
    'the line',
  )
})
