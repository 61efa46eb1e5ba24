/** A scenario can be run, and describes the table of its numbers. */

/**
 * A column of its table: the median of a metric.
 * @typedef {object} Column
 * @property {string} title
 * @property {string} metric
 * @property {number} digits
 * @property {number} [divisor] The table shows the metric divided by this number; 1 if left out.
 */

/**
 * A column that compares one row with all others: its metric divided by the metric of each other row, in each round.
 * @typedef {object} RatioColumn
 * @property {string} title
 * @property {string} ratioOf The metric.
 * @property {string} of The row.
 */

/**
 * The quartiles of a RatioColumn.
 * @typedef {object} QuartilesColumn
 * @property {string} title
 * @property {string} quartilesOf The metric.
 * @property {string} of The row.
 */

/**
 * The other way round: the metric of each row divided by that of one row, in each round.
 * @typedef {object} RatioToColumn
 * @property {string} title
 * @property {string} ratioTo The row.
 * @property {string} metric
 */

/**
 * A column that compares all rows with one: the metric of each row minus the metric of that row, in each round.
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
 * @property {string} about The method, if it differs from the one in the README.
 * @property {() => string | undefined} [missing] Why it cannot run on this machine, if it cannot.
 * @property {string} rowTitle
 * @property {readonly (Column | RatioColumn | RatioToColumn | QuartilesColumn | DifferenceColumn)[]} columns
 * @property {(bench: import('../harness/bench.mjs').Bench) => Promise<import('../harness/samples.mjs').Samples>} run
 */

export const MEBIBYTE = 1_048_576
export const KIBIBYTE = 1_024

/** @type {Column} */
export const FAILURES_COLUMN = { title: 'failures', metric: 'failures', digits: 0 }

/** @type {Column} */
export const PEAK_COLUMN = { title: 'peak RSS MiB', metric: 'peakBytes', digits: 0, divisor: MEBIBYTE }

/** @type {Column[]} */
export const LATENCY_COLUMNS = [
  { title: 'p50 ms', metric: 'p50Ms', digits: 2 },
  { title: 'p99 ms', metric: 'p99Ms', digits: 2 },
]

/**
 * The share of the proxy's core that other programs used. Some percent are the kernel's; more is a disturbed measurement.
 * @type {Column}
 */
export const OTHERS_COLUMN = { title: 'core: others %', metric: 'othersShare', digits: 0, divisor: 0.01 }

/** @type {(title: string, metric: string) => RatioToColumn} */
export const ratioToDirect = (title, metric) => ({ title: `${title} ÷ direct`, ratioTo: 'direct', metric })

/** @type {RatioColumn} */
export const CPU_RATIO_COLUMN = { title: 'CPU: this program ÷ it', ratioOf: 'cpuMicros', of: 'org-access-proxy' }
