/** What the service says about one token: is it known yet, is it accepted, has it ended? */

import type { Asker, Got, ProbeToken, Verdict } from './asker.ts'
import { span, Unaskable } from './findings.ts'

export const CONNECTIONS = 20
/** One of these may lead to a bad back end, hardly all of them. */
const FEW = 5
/** A new token that is not known after this time is not waited for. */
export const LONGEST_DELAY_MS = 15_000

/** To follow one token. */
const MOST_GETS = 100

export const ALL = Array.from({ length: CONNECTIONS }, (_, connection) => connection)

export async function askRound(asker: Asker, token: ProbeToken, connections: readonly number[]): Promise<Got[]> {
  return await Promise.all(connections.map((connection) => asker.get(token, connection)))
}

export function count(gots: readonly Got[], verdict: Verdict): number {
  return gots.filter((got) => got.verdict === verdict).length
}

/** None rejected it, and most of the others said something. */
const isClean = (gots: readonly Got[]) => count(gots, 'rejected') === 0 && count(gots, 'accepted') * 2 > gots.length

/**
 * Follows a new token. Of the connections that do not accept it, three at most are asked until they do; then all are. Each
 * request may reach another back end, so two rounds in a row must be clean after one that was not. `knownMs` is the age from which on
 * no connection rejected the token, undefined if some did to the end; `rejectedMs` its least age at the last rejection.
 */
export async function follow(asker: Asker, token: ProbeToken) {
  const leastLeft = asker.getsLeft - MOST_GETS
  const first = await askRound(asker, token, ALL)
  const all = [...first]
  let knownMs = isClean(first) ? asker.now() - token.askedAt : undefined
  let isKnown = knownMs !== undefined
  for (let last = first; !isKnown; ) {
    const ageMs = asker.now() - token.askedAt
    if (ageMs > LONGEST_DELAY_MS || asker.getsLeft < leastLeft) break
    await asker.sleepUntil(asker.now() + Math.max(50, ageMs * 0.4))
    const open = last.filter(({ verdict }) => verdict !== 'accepted').slice(0, knownMs === undefined ? 3 : 0)
    const watched = await askRound(
      asker,
      token,
      open.map(({ connection }) => connection),
    )
    all.push(...watched)
    if (count(watched, 'accepted') < watched.length) continue
    last = await askRound(asker, token, ALL)
    all.push(...last)
    isKnown = isClean(last) && knownMs !== undefined
    knownMs = isClean(last) ? (knownMs ?? asker.now() - token.askedAt) : undefined
  }
  const ages = all.filter(({ verdict }) => verdict === 'rejected').map(({ at }) => at - token.gotAt)
  return { first, knownMs: isKnown ? knownMs : undefined, rejections: ages.length, rejectedMs: Math.max(0, ...ages) }
}

/** Asks, from an age of the token on, until it is accepted. @throws {Unaskable} if it is not */
export async function untilAccepted(asker: Asker, token: ProbeToken, fromMs = 0): Promise<void> {
  await asker.sleepUntil(token.askedAt + fromMs)
  for (;;) {
    const { verdict, text } = await asker.get(token, 0)
    if (verdict === 'accepted') return
    const ageMs = asker.now() - token.askedAt
    if (ageMs > fromMs + LONGEST_DELAY_MS)
      throw new Unaskable(`--path got ${text} with a new token, ${span(ageMs)} after its mint`)
    await asker.sleepUntil(asker.now() + Math.max(50, ageMs * 0.3))
  }
}

/** Asks until the answer says something about the token, three times at most. */
export async function look(asker: Asker, token: ProbeToken | undefined, connection = 0): Promise<Got> {
  for (let left = 2; ; left--) {
    const got = await asker.get(token, connection)
    if (got.verdict !== 'nothing' || left === 0) return got
    await asker.sleepUntil(asker.now() + 300)
  }
}

/**
 * Of a token that was known: its first rejection if it has ended, otherwise undefined. It is rejected on a few connections, a new
 * token is accepted, and it is rejected again: less than that may be a bad back end, or a service that rejects all for a while.
 * @throws {Unaskable} if there is no new token, or it is not accepted
 */
export async function endOf(asker: Asker, token: ProbeToken, newer: () => Promise<ProbeToken>) {
  const gots: Got[] = []
  const isRejected = async (connection: number) =>
    gots[gots.push(await look(asker, token, connection)) - 1]?.verdict === 'rejected'
  for (let connection = 0; connection < FEW; connection++) if (!(await isRejected(connection))) return undefined
  await untilAccepted(asker, await newer())
  return (await isRejected(0)) && (await isRejected(1)) ? gots[0] : undefined
}
