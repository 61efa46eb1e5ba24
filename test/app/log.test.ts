/** Lines of the log: for people, sampled, and of requests. */

import { expect, test } from 'vitest'
import { Log } from '../../src/app/log.ts'
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
  log.setVolume({ level: 'error', requests: 'all', sample: 1 })
  log.logger.info('second')
  log.logger.error('third')
  expect(logged().map(({ msg }) => msg)).toEqual(['first', 'third'])
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
