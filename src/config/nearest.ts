/** The known name that a misspelt one was probably meant to be. */

/** Undefined where nothing is near enough to be a help. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  const lower = name.toLowerCase()
  const limit = Math.max(1, Math.floor(name.length / 3))
  let best: string | undefined
  let bestDistance = limit + 1
  for (const candidate of known) {
    if (Math.abs(candidate.length - name.length) >= bestDistance) continue
    const distance = editDistance(lower, candidate.toLowerCase())
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance]
  }
  return best
}

/** Levenshtein's distance, one row at a time. */
function editDistance(left: string, right: string): number {
  let row = Array.from({ length: right.length + 1 }, (_, index) => index)
  for (let i = 0; i < left.length; i++) {
    const next = [i + 1]
    for (let j = 0; j < right.length; j++) {
      const substituted = at(row, j) + (left[i] === right[j] ? 0 : 1)
      next.push(Math.min(substituted, at(row, j + 1) + 1, at(next, j) + 1))
    }
    row = next
  }
  return at(row, right.length)
}

function at(row: readonly number[], index: number): number {
  return row[index] ?? Number.POSITIVE_INFINITY
}
