/** The few statistics that the bench needs. */

/**
 * The middle of the values that there are; NaN without any.
 * @param {readonly number[]} values
 */
export function median(values) {
  const sorted = values.filter((value) => !Number.isNaN(value)).sort((a, b) => a - b)
  const middle = Math.floor(sorted.length / 2)
  const upper = sorted[middle] ?? Number.NaN
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? Number.NaN) + upper) / 2
}

/**
 * The value below which the given share of all values lies; NaN without any.
 * @param {readonly number[]} values
 * @param {number} share from 0 to 1
 */
export function quantile(values, share) {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN
}

/**
 * A shuffled copy, the same for the same seed on every machine.
 * @template T
 * @param {readonly T[]} values
 * @param {number} seed
 * @returns {T[]}
 */
export function shuffled(values, seed) {
  const random = mulberry32(seed)
  const keyed = values.map((value) => /** @type {const} */ ([random(), value]))
  return keyed.sort(([a], [b]) => a - b).map(([, value]) => value)
}

/** @param {number} seed */
function mulberry32(seed) {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}
