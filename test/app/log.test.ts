/** Lines of the log for people. */

import { expect, test } from 'vitest'
import { Log, prettyLine } from '../../src/app/log.ts'

const line = (fields: object) =>
  JSON.stringify({ level: 'warn', time: '2026-11-20T08:09:10.123Z', msg: 'it happened', ...fields })

test('values are quoted if their end would be unclear', () => {
  const fields = {
    plain: 'a/b:c',
    spaced: 'a b',
    empty: '',
    quote: 'a"b',
    pair: 'a=b',
    feed: 'a\nb',
    number: 1,
    list: ['a'],
  }
  expect(prettyLine(line(fields))).toBe(
    '08:09:10.123 WARN  it happened plain=a/b:c spaced="a b" empty="" quote="a\\"b" pair="a=b" feed="a\\nb" number=1 list=["a"]\n',
  )
})

test('the level is coloured', () => {
  expect(prettyLine(line({}), true)).toContain('\x1b[33mWARN \x1b[39m')
})

test.each(['no JSON\n', '"text"\n', 'null\n'])('%j passes unchanged', (text) => {
  expect(prettyLine(text)).toBe(text)
})

test('the volume can be changed while the program runs', () => {
  const lines: string[] = []
  const log = new Log({
    level: 'info',
    requests: 'all',
    format: 'json',
    destination: { write: (text) => lines.push(text) },
  })
  log.logger.info('first')
  log.setVolume({ level: 'error', requests: 'all' })
  log.logger.info('second')
  log.logger.error('third')
  expect(lines.map((text) => JSON.parse(text).msg)).toEqual(['first', 'third'])
})
