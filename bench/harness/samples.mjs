/** Measured values: a set of named numbers for each round, and a list of rounds for each row of the table. */

import { median } from './statistics.mjs'

/** Of a failed round, only the reason. @typedef {Readonly<Record<string, number>> | { readonly failed: string }} Sample */

/** Keyed by a candidate's name, or by the value that grows. @typedef {Record<string, Sample[]>} Samples */

/**
 * The median over the rounds; NaN where it was not measured.
 * @param {Samples} samples
 * @param {string} key
 * @param {string} metric
 */
export function medianOf(samples, key, metric) {
  return median(valuesOf(samples, key, metric))
}

/**
 * How the one compares to the other in the same round, as a median over the rounds: what the machine did meanwhile
 * touched both.
 * @param {Samples} samples
 * @param {string} metric
 * @param {string} key
 * @param {string} otherKey
 */
export function medianRatio(samples, metric, key, otherKey) {
  return median(ratiosOf(samples, metric, key, otherKey))
}

/**
 * In the rounds in which both were measured.
 * @param {Samples} samples
 * @param {string} metric
 * @param {string} key
 * @param {string} otherKey
 */
export function ratiosOf(samples, metric, key, otherKey) {
  const ratios = pairs(samples, metric, key, otherKey).map(([value, other]) => value / other)
  return ratios.filter((ratio) => !Number.isNaN(ratio))
}

/**
 * @param {Samples} samples
 * @param {string} metric
 * @param {string} key
 * @param {string} otherKey
 */
export function medianDifference(samples, metric, key, otherKey) {
  return median(differencesOf(samples, metric, key, otherKey))
}

/**
 * @param {Samples} samples
 * @param {string} metric
 * @param {string} key
 * @param {string} otherKey
 */
export function differencesOf(samples, metric, key, otherKey) {
  return pairs(samples, metric, key, otherKey).map(([value, other]) => value - other)
}

/**
 * @param {Samples} samples
 * @param {string} key
 * @param {string} metric
 */
export function valuesOf(samples, key, metric) {
  return (samples[key] ?? []).map((sample) => ('failed' in sample ? undefined : sample[metric]) ?? Number.NaN)
}

/**
 * @param {Samples} samples
 * @param {string} metric
 * @param {string} key
 * @param {string} otherKey
 */
function pairs(samples, metric, key, otherKey) {
  const others = valuesOf(samples, otherKey, metric)
  return valuesOf(samples, key, metric)
    .slice(0, others.length)
    .map((value, round) => /** @type {const} */ ([value, others[round] ?? Number.NaN]))
}

/**
 * Measures everything once in each round; each round begins with another one, so that none always follows the same.
 * What fails leaves its reason: one peer that breaks must not cost the others their hour.
 * @template {{ readonly name: string } | number} Subject
 * @param {import('./bench.mjs').Bench} bench
 * @param {readonly Subject[]} subjects
 * @param {(subject: Subject) => Promise<Sample>} measure
 * @returns {Promise<Samples>}
 */
export async function alternate({ options, say }, subjects, measure) {
  const keyOf = (/** @type {Subject} */ subject) => (typeof subject === 'number' ? String(subject) : subject.name)
  /** @type {Samples} */
  const samples = Object.fromEntries(subjects.map((subject) => [keyOf(subject), []]))
  for (let round = 0; round < options.rounds; round++) {
    const first = round % Math.max(1, subjects.length)
    for (const subject of [...subjects.slice(first), ...subjects.slice(0, first)]) {
      const key = keyOf(subject)
      say(`  round ${round + 1} of ${options.rounds}: ${key}`)
      samples[key]?.push(await measure(subject).catch((error) => failedSample(error, say)))
    }
  }
  return samples
}

/**
 * @param {unknown} error
 * @param {(text: string) => void} say
 * @returns {Sample}
 */
export function failedSample(error, say) {
  const { message = String(error), cause } = error instanceof Error ? error : {}
  const failed = cause instanceof Error ? `${message}: ${cause.message}` : message
  say(`  FAILED: ${failed}`)
  return { failed }
}

/**
 * Why, for each round in which it failed.
 * @param {Samples} samples
 * @param {string} key
 */
export function failuresOf(samples, key) {
  return (samples[key] ?? []).flatMap((sample) => ('failed' in sample ? [String(sample.failed)] : []))
}
