/** The end that a token states of itself, where it happens to be a JWT (RFC 7519 §4.1.4). Read, never verified. */

/** A shorter rest says more about two clocks than about the token. */
const MIN_REST_MS = 1_000

/**
 * How long the token goes on, counted from `issuedAt` (wall clock, milliseconds): undefined where it is no JWT, states no
 * end, or one that does not lie ahead. A wall clock is read this once: what it does later changes nothing.
 */
export function jwtRestMs(token: string, issuedAt: number): number | undefined {
  const parts = token.split('.')
  if (parts.length !== 3) return undefined
  const expiresAtSeconds = readExpiry(parts[1] ?? '')
  if (expiresAtSeconds === undefined) return undefined
  const restMs = expiresAtSeconds * 1_000 - issuedAt
  return Number.isFinite(restMs) && restMs >= MIN_REST_MS ? restMs : undefined
}

function readExpiry(payload: string): number | undefined {
  try {
    const claims: unknown = JSON.parse(Buffer.from(payload, 'base64url').toString('utf8'))
    if (typeof claims !== 'object' || claims === null || !('exp' in claims)) return undefined
    return typeof claims.exp === 'number' ? claims.exp : undefined
  } catch {
    return undefined
  }
}
