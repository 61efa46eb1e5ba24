/**
 * Asks the questions, in an order in which each leaves the next one a token that fits. Judges nothing: what the answers mean is
 * in `judgements.ts`.
 */

import { randomBytes, randomInt } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { OrgId } from '../org-id.ts'
import { Secret } from '../secret.ts'
import { type Asker, CONNECTIONS, type Got, type Mint, type ProbeToken, Unaskable } from './asker.ts'
import { type Lives, watchLives } from './lives.ts'
import {
  ASIDE,
  type Asked,
  getSurely,
  isSuccess,
  type Judge,
  LONGEST_DELAY_MS,
  type Sample,
  sampleOf,
  tokenOf,
} from './samples.ts'

const ALL_CONNECTIONS = Array.from({ length: CONNECTIONS }, (_, index) => index)

/** A new token on twenty connections. */
export interface Trial {
  readonly samples: readonly Sample[]
  /** In the end, all of them accepted it. */
  readonly isClean: boolean
  /** Only one of those that rejected it at once was asked again. */
  readonly isRough: boolean
}

/** The former token, around the mint of the next one. */
export interface Succession {
  readonly before: Got
  readonly after: Got
  /** Some time later. */
  readonly later: Got
  readonly isBeforeAccepted: boolean
  readonly isAfterAccepted: boolean
  readonly isLaterAccepted: boolean
}

export interface Answers {
  readonly mints: readonly Mint[]
  readonly gets: readonly Got[]
  readonly noToken: Asked<Got>
  readonly madeUp: Asked<Got>
  readonly first: Mint
  readonly firstTrial: Asked<Trial>
  readonly second: Asked<Mint>
  readonly isSameToken: Asked<boolean>
  readonly secondTrial: Asked<Trial>
  /** The first token on all connections, where the second one was still rejected. */
  readonly olderToken: Asked<readonly Sample[]>
  readonly succession: Asked<Succession>
  /** Of the second token, around a third mint. Asked if the first one ended. */
  readonly nextSuccession: Asked<Succession>
  readonly unknownOrg: Asked<Mint>
  readonly lives: Asked<Lives>
}

export interface Task {
  readonly org: OrgId
  /** Undefined if none can be made up. */
  readonly unknownOrg: OrgId | undefined
  /** 0: lives are not measured. */
  readonly waitMs: number
  /** How long after its successor the former token may still be good, before that counts as living side by side. */
  readonly graceMs?: number | undefined
  /** Is told what is under way. */
  readonly tell: (what: string) => void
}

export async function askAll(asker: Asker, { org, unknownOrg, waitMs, graceMs = 3_000, tell }: Task): Promise<Answers> {
  tell('a GET without a token, the first mint, and its token on twenty connections')
  const noToken = await asked(() => asker.get(undefined, ASIDE))
  const first = await firstMint(asker, org)
  const madeUp = await asked(() => asker.get(madeUpLike(tokenOf(first)), ASIDE))
  const judge = await asked(async () => judgeFrom(had(noToken), had(madeUp)))
  const firstTrial = await asked(() => follow(asker, tokenOf(first), had(judge), { isRough: true }))

  tell('a second mint, and its token on twenty connections')
  const before = await asked(() => getSurely(asker, tokenOf(first), had(judge)))
  const second = await asked(async () => {
    tokenOf(first)
    return await asker.mint(org)
  })
  const isSameToken = await asked(async () => tokenOf(first).secret.equals(tokenOf(had(second)).secret))
  const other = await asked(async () => {
    if (had(isSameToken)) throw new Unaskable('the endpoint gives the same token again')
    return tokenOf(had(second))
  })
  const [secondTrial, after] = await Promise.all([
    asked(() => follow(asker, had(other), had(judge), { isRough: false })),
    asked(async () => {
      had(other)
      return await asker.get(tokenOf(first), ASIDE)
    }),
  ])
  const succession = await asked(async () => {
    const restMs = had(after).at + graceMs - performance.now()
    if (had(judge)(had(after)) && restMs > 0) await sleep(restMs)
    const later = await getSurely(asker, tokenOf(first), had(judge))
    return successionOf([had(before), had(after), later], had(judge))
  })

  const olderToken = await asked(async () => {
    if (had(secondTrial).isClean || !had(succession).isLaterAccepted) throw new Unaskable('there is no reason to')
    const gots = await Promise.all(ALL_CONNECTIONS.map((connection) => asker.get(tokenOf(first), connection)))
    return gots.map((got) => sampleOf(got, tokenOf(first), had(judge)))
  })

  const hasEnded = 'answer' in succession && succession.answer.isBeforeAccepted && !succession.answer.isLaterAccepted
  if (hasEnded) tell('a third mint: does it end the second token, too?')
  const nextSuccession = await asked(async () => {
    if (!hasEnded) throw new Unaskable('the first token did not end')
    return await succeed(asker, org, had(other), had(judge), succession.answer)
  })

  tell('a mint for an Org that does not exist')
  const unknown = await asked(async () => {
    if (unknownOrg === undefined) throw new Unaskable('orgs.pattern fits no id that could be made up')
    return await asker.mint(unknownOrg)
  })

  // A token that lives for seconds may end by itself behind a mint, but hardly twice.
  const next = 'answer' in nextSuccession ? nextSuccession.answer : undefined
  const isReplaced = next?.isBeforeAccepted === true && !next.isLaterAccepted
  const replaced = isReplaced ? 'a new token seems to end the one before' : undefined
  const whyNotUnused = replaced ?? ('reason' in other ? other.reason : undefined)
  if (waitMs > 0) tell(`how long tokens live, for ${Math.round(waitMs / 1_000)} s`)
  const lives = await asked(async () => {
    if (waitMs === 0) throw new Unaskable('it takes time: give --wait')
    return await watchLives(asker, org, had(judge), waitMs, whyNotUnused, had(isSameToken))
  })
  const { mints, gets } = asker
  const answers = {
    noToken,
    madeUp,
    first,
    firstTrial,
    second,
    isSameToken,
    secondTrial,
    olderToken,
    succession,
    nextSuccession,
  }
  return { mints, gets, ...answers, unknownOrg: unknown, lives }
}

/** If the member of the configuration is missing, and one other looks like a token, that one is taken for it. */
async function firstMint(asker: Asker, org: OrgId): Promise<Mint> {
  const mint = await asker.mint(org)
  const [candidate, ...others] = mint.candidates
  if (mint.token !== undefined || candidate === undefined || others.length > 0) return mint
  asker.field = candidate.split('.')
  return await asker.mint(org)
}

async function asked<T>(ask: () => Promise<T>): Promise<Asked<T>> {
  try {
    return { answer: await ask() }
  } catch (error) {
    if (error instanceof Unaskable) return { reason: error.message }
    throw error
  }
}

/** @throws {Unaskable} with the reason why there is no answer */
function had<T>(given: Asked<T>): T {
  if ('reason' in given) throw new Unaskable(given.reason)
  return given.answer
}

/** Of the same shape, so that the service looks it up: random letters and digits in the place of those of the token. */
function madeUpLike({ secret, ...others }: ProbeToken): ProbeToken {
  const text = secret.reveal()
  const kept = others.isJwt ? text.lastIndexOf('.') + 1 : 0 // the signature is what cannot be guessed
  const random = [...text.slice(kept)].map((char) => {
    const letters = ['abcdefghijklmnopqrstuvwxyz', 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', '0123456789']
    const row = letters.find((each) => each.includes(char))
    return row === undefined ? char : row[randomInt(row.length)]
  })
  // A short one could be the token of somebody else.
  const madeUp = random.length < 20 ? randomBytes(24).toString('base64url') : random.join('')
  return { secret: new Secret(text.slice(0, kept) + madeUp), ...others }
}

/** @throws {Unaskable} if the answers do not tell a good token from a bad one */
function judgeFrom(noToken: Got, madeUp: Got): Judge {
  const { status } = madeUp
  if (status === undefined) throw new Unaskable(`the GETs fail: ${madeUp.failure}`)
  if (isSuccess(status)) throw new Unaskable(`the path answers ${status} to a made-up token, too: give another --path`)
  if (status >= 500) throw new Unaskable(`the path answers ${status}: give another --path`)
  const rejections = [status, noToken.status, 401, 403]
  return (got) => got.status !== undefined && got.status < 500 && !rejections.includes(got.status)
}

/** Most GETs to follow one token. */
const MOST_GETS = 110

/**
 * Asks until all connections accept the token. Those that reject it are represented by a few, so that the delay is known within
 * a third of itself; once these accept, all are asked again. If some reject it then, each request may reach another back end, so
 * more of them are watched.
 */
async function follow(
  asker: Asker,
  token: ProbeToken,
  judge: Judge,
  { isRough }: { isRough: boolean },
): Promise<Trial> {
  const samples: Sample[] = []
  const ask = async (connections: readonly number[]) => {
    const gots = await Promise.all(connections.map((connection) => asker.get(token, connection)))
    samples.push(...gots.map((got) => sampleOf(got, token, judge)))
    return gots.filter((got) => !judge(got)).map(({ connection }) => connection)
  }
  let rejecting = await ask(ALL_CONNECTIONS)
  for (let most = isRough ? 1 : 3; rejecting.length > 0; most = 8) {
    const others = most === 8 ? ALL_CONNECTIONS.filter((connection) => !rejecting.includes(connection)) : []
    const watched = [...rejecting, ...others].slice(0, most)
    for (let isAccepted = false; !isAccepted; ) {
      const ageMs = performance.now() - token.askedAt
      if (ageMs > LONGEST_DELAY_MS || samples.length > MOST_GETS) return { samples, isClean: false, isRough }
      await sleep(Math.max(40, ageMs * 0.3))
      isAccepted = (await ask(watched)).length === 0
    }
    rejecting = isRough ? [] : await ask(ALL_CONNECTIONS)
  }
  return { samples, isClean: true, isRough }
}

function successionOf([before, after, later]: readonly [Got, Got, Got], judge: Judge): Succession {
  const [isBeforeAccepted, isAfterAccepted, isLaterAccepted] = [judge(before), judge(after), judge(later)]
  return { before, after, later, isBeforeAccepted, isAfterAccepted, isLaterAccepted }
}

/**
 * The next mint, and what the former token is answered after as long as it took the last time. If that was not at once, the
 * token has to outlive that time without a mint first: otherwise it may just have come to its end.
 */
async function succeed(
  asker: Asker,
  org: OrgId,
  former: ProbeToken,
  judge: Judge,
  last: Succession,
): Promise<Succession> {
  const graceMs = last.isAfterAccepted ? Math.max(500, last.later.at - last.after.at) : 0
  if (graceMs > 0) await sleep(graceMs)
  const before = await getSurely(asker, former, judge)
  await asker.mint(org)
  const after = await asker.get(former, ASIDE)
  if (graceMs > 0 && judge(after)) await sleep(graceMs)
  return successionOf([before, after, await getSurely(asker, former, judge)], judge)
}
