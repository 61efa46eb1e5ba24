/** What a scenario is: something that can be run, and how its numbers are shown. */

/**
 * A column of its table: the median of a metric.
 * @typedef {object} Column
 * @property {string} title
 * @property {string} metric
 * @property {number} digits
 * @property {number} [divisor] What the metric is divided by to be shown; 1 if left out.
 */

/**
 * A column that sets one row against all: that row's metric divided by each other one's, round by round.
 * @typedef {object} RatioColumn
 * @property {string} title
 * @property {string} ratioOf The metric.
 * @property {string} of The row.
 */

/**
 * A column that sets all rows against one: each row's metric less that one's, round by round.
 * @typedef {object} DifferenceColumn
 * @property {string} title
 * @property {string} differenceOf The metric.
 * @property {string} from The row.
 * @property {number} digits
 */

/**
 * @typedef {object} Scenario
 * @property {string} name
 * @property {string} title
 * @property {string} about How it is measured, where the README does not say it for all.
 * @property {() => string | undefined} [missing] Why it cannot run on this machine, if it cannot.
 * @property {string} rowTitle
 * @property {readonly (Column | RatioColumn | DifferenceColumn)[]} columns
 * @property {(bench: import('../harness/bench.mjs').Bench) => Promise<import('../harness/samples.mjs').Samples>} run
 */

export const MEBIBYTE = 1_048_576
export const KIBIBYTE = 1_024

/** @type {Column} */
export const PEAK_COLUMN = { title: 'peak RSS MiB', metric: 'peakBytes', digits: 0, divisor: MEBIBYTE }

/** @type {Column[]} */
export const LATENCY_COLUMNS = [
  { title: 'p50 ms', metric: 'p50Ms', digits: 2 },
  { title: 'p99 ms', metric: 'p99Ms', digits: 2 },
]

/**
 * How much of the proxy's core went to anybody else: some percent are the kernel's, more is a disturbed measurement.
 * @type {Column}
 */
export const OTHERS_COLUMN = { title: 'core: others %', metric: 'othersShare', digits: 0, divisor: 0.01 }

/** @type {RatioColumn} */
export const CPU_RATIO_COLUMN = { title: 'CPU: this program ÷ it', ratioOf: 'cpuMicros', of: 'org-access-proxy' }
