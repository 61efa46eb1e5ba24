/** The text format in which Prometheus reads metrics (version 0.0.4). Pure. */

import type { HistogramSnapshot } from './histogram.ts'

export const EXPOSITION_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

export type Labels = Readonly<Record<string, string>>

export interface Sample {
  readonly labels: Labels
  readonly value: number
  /** Set for the parts of a histogram. */
  readonly suffix?: '_bucket' | '_sum' | '_count'
}

export interface MetricFamily {
  readonly name: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly help: string
  readonly samples: readonly Sample[]
}

/** A family without labels. */
export function single(name: string, type: 'counter' | 'gauge', help: string, value: number): MetricFamily {
  return { name, type, help, samples: [{ labels: {}, value }] }
}

export function labelled(
  name: string,
  type: 'counter' | 'gauge',
  help: string,
  samples: readonly Sample[],
): MetricFamily {
  return { name, type, help, samples }
}

/** In seconds, and cumulative, as the format wants it. */
export function histogramFamily(name: string, help: string, snapshot: HistogramSnapshot): MetricFamily {
  const samples: Sample[] = []
  let below = 0
  for (const [i, boundMs] of snapshot.boundsMs.entries()) {
    below += snapshot.counts[i] ?? 0
    samples.push({ suffix: '_bucket', labels: { le: number(boundMs / 1000) }, value: below })
  }
  samples.push({ suffix: '_sum', labels: {}, value: snapshot.sumMs / 1000 })
  samples.push({ suffix: '_count', labels: {}, value: below })
  return { name, type: 'histogram', help, samples }
}

export function renderFamilies(families: readonly MetricFamily[]): string {
  return families.map(renderFamily).join('\n')
}

function renderFamily({ name, type, help, samples }: MetricFamily): string {
  let text = `# HELP ${name} ${help.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')}\n# TYPE ${name} ${type}\n`
  for (const { suffix = '', labels, value } of samples) {
    text += `${name}${suffix}${renderLabels(labels)} ${number(value)}\n`
  }
  return text
}

function renderLabels(labels: Labels): string {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escaped(value)}"`)
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`
}

function escaped(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')
}

function number(value: number): string {
  if (value === Number.POSITIVE_INFINITY) return '+Inf'
  if (value === Number.NEGATIVE_INFINITY) return '-Inf'
  return String(value)
}
