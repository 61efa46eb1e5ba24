/** Writes the results for people: RESULTS.md, and each table while the bench runs. */

import { SCENARIOS } from '../scenarios/all.mjs'
import { TITLES } from './bench.mjs'
import { failuresOf, medianDifference, medianOf, medianRatio, ratiosOf } from './samples.mjs'
import { quantile } from './statistics.mjs'
import { markdownTable, shown } from './table.mjs'
import { targetTable } from './targets.mjs'

/** @typedef {import('./results.mjs').Results} Results */
/** @typedef {import('./results.mjs').Run} Run */
/** @typedef {import('./samples.mjs').Samples} Samples */
/** @typedef {import('../scenarios/scenario.mjs').Scenario} Scenario */

/**
 * The medians of a scenario, and its failures.
 * @param {Scenario} scenario
 * @param {Samples} samples
 */
export function scenarioTable({ rowTitle, columns }, samples) {
  const rows = Object.keys(samples).map((key) => {
    const hasFailed = failuresOf(samples, key).length === samples[key]?.length
    return [rowName(key, samples), ...columns.map((column) => (hasFailed ? 'failed' : cell(column, samples, key)))]
  })
  const failures = Object.keys(samples)
    .filter((key) => failuresOf(samples, key).length > 0)
    .map((key) => {
      const reasons = failuresOf(samples, key)
      const rounds = `${reasons.length} of ${samples[key]?.length} rounds`
      return `**Failed:** ${rowName(key, samples)}, in ${rounds}: ${[...new Set(reasons)].join('; ')}.`
    })
  return [markdownTable([rowTitle, ...columns.map(({ title }) => title)], rows), ...failures].join('\n\n')
}

/**
 * @param {Scenario['columns'][number]} column
 * @param {Samples} samples
 * @param {string} key
 */
function cell(column, samples, key) {
  if ('ratioOf' in column) return shown(medianRatio(samples, column.ratioOf, column.of, key), 2)
  if ('ratioTo' in column) return shown(medianRatio(samples, column.metric, key, column.ratioTo), 2)
  if ('quartilesOf' in column) {
    const ratios = ratiosOf(samples, column.quartilesOf, column.of, key)
    return [0.25, 0.75].map((share) => shown(quantile(ratios, share), 2)).join(' to ')
  }
  if ('differenceOf' in column) {
    return shown(medianDifference(samples, column.differenceOf, key, column.from), column.digits)
  }
  return shown(medianOf(samples, key, column.metric) / (column.divisor ?? 1), column.digits)
}

/**
 * A candidate's title; a value that grew, with its thousands apart.
 * @param {string} key
 * @param {Samples} samples
 */
function rowName(key, samples) {
  const isGrowth = Object.keys(samples).every((other) => /^\d+$/.test(other))
  if (isGrowth) return shown(Number(key), 0)
  return TITLES[key] ?? key
}

/** @param {Results} results */
export function renderResults(results) {
  const measured = SCENARIOS.flatMap((scenario) => {
    const result = results[scenario.name]
    return result === undefined ? [] : [{ scenario, ...result }]
  })
  const runs = [...new Map(measured.map(({ run }) => [run.startedAt, run])).values()]
  const sections = measured.map(({ scenario, run, samples }) =>
    [
      `## ${scenario.title}`,
      ...(scenario.about === '' ? [] : [scenario.about]),
      scenarioTable(scenario, samples),
      ...(runs.length === 1 ? [] : [`Measured in the run of ${run.startedAt}.`]),
    ].join('\n\n'),
  )
  return `${[HEAD, ...runs.map(describeRun), '## Targets', targetTable(results), ...sections].join('\n\n')}\n`
}

const HEAD = `# Results

\`npm run bench\` writes this page. [README.md](README.md) describes the method; \`results.json\` has every
sample. Numbers are medians over the rounds. A ratio or difference is the median of the values of single rounds. Compare
ratios across machines, not microseconds.`

/** @param {Run} run */
function describeRun({ startedAt, rounds, seconds, machine, skipped }) {
  const { cpu, cores, memoryGib, kernel, congestionControl, loadBefore, versions } = machine
  const programs = Object.entries(versions).map(([name, version]) => `${name} ${version}`)
  const missing = Object.entries(skipped).map(([name, reason]) => `\n- **Skipped:** ${TITLES[name] ?? name}: ${reason}`)
  return `- **Run** of ${startedAt}: ${rounds} rounds of ${seconds} s, Node ${versions.node}
- **Machine:** ${cpu}, ${cores} cores, ${memoryGib} GiB, ${kernel}, TCP ${congestionControl}; load average before: ${shown(loadBefore, 2)}
- **Programs:** ${programs.join(', ')}${missing.join('')}`
}
