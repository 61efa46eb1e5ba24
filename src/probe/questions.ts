/** Asks the questions, in an order in which each leaves the next one a token that fits, and says what was found. */

import { randomBytes } from 'node:crypto'
import type { OrgId } from '../org-id.ts'
import { Secret } from '../secret.ts'
import { lifeAhead } from '../token/token-reply.ts'
import type { Asker, Got, Mint, ProbeToken } from './asker.ts'
import { type Answer, type Facts, type Finding, notSeen, seen, span, Unaskable } from './findings.ts'
import { askLeftAlone, watchInUse } from './lives.ts'
import { ALL, askRound, CONNECTIONS, count, endOf, follow, LONGEST_DELAY_MS, look, untilAccepted } from './trials.ts'

export interface Task {
  readonly org: OrgId
  /** Undefined if none can be made up. */
  readonly unknownOrg: OrgId | undefined
  /** 0: lives are not measured. */
  readonly waitMs: number
  /** The call of the endpoint as people read it. */
  readonly url: string
}

/** How long a former token may outlive its successor's mint, before that counts as living side by side. */
const GRACE_MS = 3_000
/** A token that ends by itself may do so behind a mint once, hardly so often. */
const SUCCESSIONS = 3

export class Questions {
  readonly findings: Finding[] = []
  facts: Facts = {}
  readonly #asker: Asker
  readonly #task: Task
  /** The member that is taken for the token is not that of the configuration, and was not accepted yet. */
  #isGuess = false
  /** A token that is younger may not be known everywhere. */
  #matureMs = LONGEST_DELAY_MS

  constructor(asker: Asker, task: Task) {
    this.#asker = asker
    this.#task = task
  }

  /** Each one is asked, or told with the reason why it cannot be, also once the probe was interrupted. */
  async askAll(): Promise<void> {
    const asker = this.#asker
    const { waitMs } = this.#task
    await this.#ask('no token', async () => judgeRejection('A request without a token', await look(asker, undefined)))
    const mint = await this.#ask('token endpoint', () => this.#askEndpoint())
    const first = () => tokenOf(mint())
    await this.#ask('stated end', async () => judgeStatedEnd(mint()))
    const madeUp = await this.#ask('made-up token', async () => {
      const got = await look(asker, madeUpLike(first()))
      return { ...judgeRejection('A made-up token', got, { unknownStatus: got.status }), value: got }
    })
    const path = await this.#ask('good token', () => this.#askPath(first(), madeUp()))
    await this.#ask('answer', async () => judgeMembers(mint(), asker.field, this.#isGuess))
    const second = await this.#ask('same token', () => this.#askSameToken(first()))
    const both = (): [ProbeToken, ProbeToken] => {
      path()
      if (second().secret.equals(first().secret)) throw new Unaskable('the endpoint gives the same token again')
      return [first(), second()]
    }
    await this.#ask('delay', async () => this.#askDelay(...both()))
    await this.#ask('one live token', async () => this.#askSuccession(...both()))
    await this.#ask('unknown Org', () => this.#askUnknownOrg())
    const lives = () => ({
      asker,
      waitMs,
      mint: async () => tokenOf(await this.#mint()),
      liveSideBySide: this.facts.endsFormer === false,
      matureMs: this.#matureMs,
    })
    const watched = await this.#ask('life in use', async () => {
      if (waitMs === 0) throw new Unaskable('it takes time: give --wait')
      both()
      return watchInUse(lives())
    })
    await this.#ask('life left alone', async () => askLeftAlone(lives(), watched()))
    await this.#ask('ended token', async () => {
      const { end } = this.facts
      if (end === undefined) throw new Unaskable('no token is known to have ended')
      return seen(`A token that has ended gets ${end.status}.`, end.text)
    })
    await this.#ask('limits', async () => judgeLimits(asker))
  }

  /**
   * What cannot be asked is a finding, too. Resolves with a function that returns the value of the answer, or throws the reason
   * why there is none.
   */
  async #ask<T>(about: string, question: () => Promise<Answer<T>>): Promise<() => T> {
    try {
      const { facts, value, ...found } = await question()
      this.findings.push({ about, ...found })
      this.facts = { ...this.facts, ...facts }
      return () => value
    } catch (error) {
      if (!(error instanceof Unaskable)) throw error
      this.findings.push({ about, outcome: 'could not be asked', says: '', evidence: error.message })
      return () => {
        throw error
      }
    }
  }

  /** Mints again after what says nothing: no answer, a fault, a page in place of JSON. */
  async #mint(): Promise<Mint> {
    for (let left = 2; ; left--) {
      const mint = await this.#asker.mint(this.#task.org)
      const { slowestMintMs = 0 } = this.facts
      const durationMs = mint.endedAt - mint.at
      if (mint.token !== undefined) this.facts = { ...this.facts, slowestMintMs: Math.max(slowestMintMs, durationMs) }
      const hasFailed = mint.verdict === 'nothing' || (mint.verdict === 'accepted' && mint.members === undefined)
      if (!hasFailed || mint.isLimited || left === 0) return mint
      await this.#asker.sleepUntil(this.#asker.now() + 500)
    }
  }

  /** If the member of the configuration is missing, and one other looks like a token, that one is tried. */
  async #askEndpoint(): Promise<Answer<Mint>> {
    const { url } = this.#task
    let mint = await this.#mint()
    const [candidate, ...others] = mint.candidates
    if (mint.token === undefined && candidate !== undefined && others.length === 0) {
      this.#isGuess = true
      this.#asker.field = candidate.split('.')
      const { text } = mint
      mint = { ...(await this.#mint()), text }
    }
    const evidence = `${mint.text}, in ${span(mint.endedAt - mint.at)}`
    const hasToken = mint.token !== undefined && !this.#isGuess
    const answer = hasToken ? seen(`${url} gives tokens.`, evidence) : notSeen(`${url} gives no token.`, evidence)
    return { ...answer, value: mint }
  }

  async #askPath(token: ProbeToken, madeUp: Got): Promise<Answer<undefined>> {
    if (madeUp.verdict === 'accepted') throw new Unaskable('the path accepts a made-up token, too: give another --path')
    await untilAccepted(this.#asker, token)
    this.#isGuess = false
    return seen('The path accepts a good token, and rejects a made-up one.', madeUp.text)
  }

  async #askSameToken(first: ProbeToken): Promise<Answer<ProbeToken>> {
    const second = tokenOf(await this.#mint())
    const isSameToken = first.secret.equals(second.secret)
    const says = `A second mint gives ${isSameToken ? 'the same token again' : 'another token'}.`
    const judge = isSameToken ? seen : notSeen
    return { ...judge(says, 'two mints, one after the other', { isSameToken }), value: second }
  }

  async #askDelay(former: ProbeToken, token: ProbeToken): Promise<Answer<undefined>> {
    const { first, knownMs, rejections, rejectedMs } = await follow(this.#asker, token)
    const [accepted, rejected] = [count(first, 'accepted'), count(first, 'rejected')]
    const atFirst = `at first ${accepted} of ${CONNECTIONS} connections accepted it, ${rejected} rejected it`
    if (rejections === 0) {
      if (knownMs === undefined) throw new Unaskable('too many GETs were not answered')
      this.#matureMs = 0
      const delay = { leastMs: 0, mostMs: 0, share: 0 }
      return notSeen('No connection rejected a new token.', atFirst, { delay })
    }
    // The former token, if it is live, is known everywhere.
    const older = await askRound(this.#asker, former, ALL)
    if (count(older, 'rejected') > 0 && count(older, 'accepted') > 0) {
      throw new Unaskable(`${count(older, 'rejected')} of ${CONNECTIONS} connections rejected an older token, too`)
    }
    const says = `A new token was rejected until ${span(rejectedMs)} after its mint.`
    if (knownMs === undefined) return seen(says, `${atFirst}; not all accepted it in time`)
    this.#matureMs = knownMs * 2
    const delay = { leastMs: rejectedMs, mostMs: knownMs, share: rejected / CONNECTIONS }
    return seen(says, `${atFirst}; from ${span(knownMs)} on all accepted it`, { delay })
  }

  /**
   * A former token may end behind a mint by itself, but hardly three times, if each one had to
   * get older than the one before without a mint, and to be idle for longer.
   */
  async #askSuccession(first: ProbeToken, second: ProbeToken): Promise<Answer<undefined>> {
    const asker = this.#asker
    let [former, next, oldestMs, longestIdleMs] = [first, second, 0, 0]
    for (let successions = 1; ; successions++) {
      const end = await this.#endBehind(former, next)
      if (end === undefined && successions > 1) throw new Unaskable('one token ended behind a mint, another did not')
      if (end === undefined) {
        const says = `A new token does not end the one before within ${span(GRACE_MS)}.`
        const evidence = `that was accepted ${span(former.acceptedAt - next.gotAt)} after the next mint`
        return notSeen(says, evidence, { endsFormer: false })
      }
      if (successions === SUCCESSIONS) {
        const evidence = `${SUCCESSIONS} times: accepted before a mint, rejected behind it`
        return seen('A new token ends the one before.', evidence, { endsFormer: true, end })
      }
      oldestMs = Math.max(oldestMs, end.endedAt - former.askedAt)
      longestIdleMs = Math.max(longestIdleMs, end.endedAt - former.acceptedAt)
      former = next
      await untilAccepted(asker, former, this.#matureMs)
      await asker.sleepUntil(Math.max(former.askedAt + oldestMs, former.acceptedAt + longestIdleMs))
      if ((await look(asker, former)).verdict !== 'accepted') throw new Unaskable('tokens end by themselves as soon')
      next = tokenOf(await this.#mint())
    }
  }

  /** The former token's first rejection; undefined if it still lives. @throws {Unaskable} if it cannot be told */
  async #endBehind(former: ProbeToken, next: ProbeToken): Promise<Got | undefined> {
    const laterAt = next.gotAt + GRACE_MS
    for (const at of [former.askedAt + this.#matureMs, laterAt]) {
      await this.#asker.sleepUntil(at)
      const end = await endOf(this.#asker, former, async () => next)
      if (end !== undefined || former.acceptedAt >= laterAt) return end
    }
    throw new Unaskable('the former token was neither accepted nor rejected for good')
  }

  async #askUnknownOrg(): Promise<Answer<undefined>> {
    const { unknownOrg } = this.#task
    if (unknownOrg === undefined) throw new Unaskable('orgs.pattern fits no id that could be made up')
    const { verdict, status, text, token } = await this.#asker.mint(unknownOrg)
    if (verdict === 'nothing') throw new Unaskable(text)
    const what = 'An Org with a made-up id is'
    if (verdict === 'accepted' && token !== undefined) return notSeen(`${what} not refused.`, text)
    // The sandbox refuses by status alone.
    if (verdict === 'accepted') return seen(`${what} refused with ${status} and no token.`, text)
    return seen(`${what} refused with ${status}.`, text, { unknownOrgStatus: status })
  }
}

/** @throws {Unaskable} */
function tokenOf({ token, text }: Mint): ProbeToken {
  if (token === undefined) throw new Unaskable(`a mint brought no token: ${text}`)
  return token
}

/** Of the same shape, so that the service looks it up: its end, which is the signature of a JWT, is turned round. */
function madeUpLike({ secret, ...others }: ProbeToken): ProbeToken {
  const text = secret.reveal()
  const end = [...text.slice(-32)].reverse().join('')
  // A short one could be the token of somebody else.
  const madeUp = text.length < 32 ? randomBytes(24).toString('base64url') : text.slice(0, -32) + end
  return { ...others, secret: new Secret(madeUp) }
}

function judgeMembers({ members = [], token }: Mint, field: readonly string[], isGuess: boolean): Answer<undefined> {
  const list = `members: ${members.length === 0 ? 'none' : members.join(', ')}`
  if (token === undefined) throw new Unaskable(`no token came; ${list}`)
  const name = field.join('.')
  if (isGuess) return notSeen(`The member ${name} may be the token: no request was accepted with it.`, list)
  return seen(`The token is the member ${name}.`, list, { field: name })
}

/** `Date` has whole seconds, and is older than the answer. */
const CLOCK_TOLERANCE_MS = 2_000

function judgeStatedEnd(mint: Mint): Answer<undefined> {
  tokenOf(mint)
  const { stated, clockOffsetMs = 0 } = mint
  if (stated.length === 0) return notSeen('The answer states no end.', 'no exp, no expires_in or expires_at')
  const isWrongClock = Math.abs(clockOffsetMs) > CLOCK_TOLERANCE_MS
  const wrong = `${span(Math.abs(clockOffsetMs))} ${clockOffsetMs > 0 ? 'ahead of' : 'behind'} our clock`
  const clock = `the Date of the answer is ${isWrongClock ? wrong : 'that of our clock, or missing'}`
  const texts = stated.map(({ by, lifeMs }) => `${by === 'jwt' ? 'exp' : by}: in ${Math.round(lifeMs / 1_000)} s`)
  const evidence = `${texts.join('; ')}; ${clock}`
  const ahead = stated.filter((each) => lifeAhead([each]) < Number.POSITIVE_INFINITY)
  if (ahead.length === 0) return notSeen('The answer states no end that lies ahead, within a year.', evidence)
  const statedLifeMs = lifeAhead(ahead)
  const facts = { statedBy: ahead.map(({ by }) => by), statedLifeMs, ...(isWrongClock && { clockOffsetMs }) }
  return seen(`A token states that it ends in ${span(statedLifeMs)}.`, evidence, facts)
}

/** `facts` follow from a rejection. @throws {Unaskable} if the answer says nothing */
function judgeRejection(what: string, { verdict, status, text }: Got, facts: Facts = {}): Answer<undefined> {
  if (verdict === 'nothing') throw new Unaskable(text)
  return verdict === 'accepted'
    ? notSeen(`${what} is not rejected.`, text)
    : seen(`${what} gets ${status}.`, text, facts)
}

function judgeLimits({ mints, gets }: Asker): Answer<undefined> {
  const textOf = (gots: readonly Got[], what: string) => {
    const texts = [...new Set(gots.map(({ limits }) => limits).filter((limits) => limits !== ''))]
    return texts.length === 0
      ? []
      : [`${what}: ${texts.length === 1 ? texts[0] : `${texts[0]}; at last ${texts.at(-1)}`}`]
  }
  const evidence = [...textOf(mints, 'mints'), ...textOf(gets, 'GETs')].join('. ')
  const met = [...mints, ...gets].find(({ isLimited }) => isLimited)
  const sent = `${mints.length} mints and ${gets.length} GETs`
  if (met !== undefined) return seen(`A limit was met after ${sent}: ${met.status}.`, evidence || 'no header')
  if (evidence !== '') return seen('Answers tell a limit.', evidence)
  return notSeen('No limit was told or met.', sent)
}
