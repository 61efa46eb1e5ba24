import { expect, test } from 'vitest'
import { histogramFamily, labelled, renderFamilies, single } from '../../src/admin/exposition.ts'
import { Histogram } from '../../src/admin/histogram.ts'

test('a family is its help, its type and its samples', () => {
  const text = renderFamilies([
    single('up', 'gauge', 'Whether it runs.', 1),
    labelled('seen_total', 'counter', 'Seen.', [
      { labels: { method: 'GET', status: '200' }, value: 3 },
      { labels: { method: 'PUT', status: '204' }, value: 0 },
    ]),
  ])
  expect(text).toBe(
    [
      '# HELP up Whether it runs.',
      '# TYPE up gauge',
      'up 1',
      '',
      '# HELP seen_total Seen.',
      '# TYPE seen_total counter',
      'seen_total{method="GET",status="200"} 3',
      'seen_total{method="PUT",status="204"} 0',
      '',
    ].join('\n'),
  )
})

test('quotes, backslashes and line ends cannot leave their place', () => {
  const text = renderFamilies([
    labelled('x', 'gauge', 'a\\b\nc', [{ labels: { state: '"} 1\nforged 2\\' }, value: Number.POSITIVE_INFINITY }]),
  ])
  expect(text).toBe('# HELP x a\\\\b\\nc\n# TYPE x gauge\nx{state="\\"} 1\\nforged 2\\\\"} +Inf\n')
})

test('a histogram is cumulative and in seconds', () => {
  const histogram = new Histogram([0.5, 250])
  for (const durationMs of [0.25, 0.25, 125, 1_000]) histogram.record(durationMs)
  expect(
    renderFamilies([histogramFamily('h', 'H.', histogram.snapshot())])
      .split('\n')
      .slice(2),
  ).toEqual([
    'h_bucket{le="0.0005"} 2',
    'h_bucket{le="0.25"} 3',
    'h_bucket{le="+Inf"} 4',
    'h_sum 1.1255',
    'h_count 4',
    '',
  ])
})
