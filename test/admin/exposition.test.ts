import { expect, test } from 'vitest'
import { Histogram, renderFamilies } from '../../src/admin/counts.ts'

test('quotes, backslashes and line ends in a label cannot forge another sample', async () => {
  const text = await renderFamilies([
    {
      name: 'x',
      type: 'gauge',
      help: 'a\\b\nc',
      values: [{ labels: { state: '"} 1\nforged 2\\' }, value: Number.POSITIVE_INFINITY }],
    },
  ])
  expect(text).toBe('# HELP x a\\\\b\\nc\n# TYPE x gauge\nx{state="\\"} 1\\nforged 2\\\\"} +Inf\n')
})

test('a histogram is cumulative and in seconds', async () => {
  const histogram = new Histogram({ name: 'h', help: 'H.' }, [0.5, 250])
  for (const durationMs of [0.25, 0.25, 125, 1_000]) histogram.record(durationMs)
  const text = await renderFamilies([histogram.family()])
  expect(text.split('\n').slice(2)).toEqual([
    'h_bucket{le="0.0005"} 2',
    'h_bucket{le="0.25"} 3',
    'h_bucket{le="+Inf"} 4',
    'h_sum 1.1255',
    'h_count 4',
    '',
  ])
})
