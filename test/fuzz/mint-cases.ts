/**
 * Damaged answers of the token endpoint. A request goes on only with a token that the answer, by the letter, gave; else it
 * gets an error and never reaches the origin. What the answer held comes out nowhere.
 */

import { randomBytes } from 'node:crypto'
import { Canaries } from '../support/canaries.ts'
import { valuesOf } from '../support/http-reader.ts'
import { scaledSetting } from '../support/pace.ts'
import type { Mint, MintScript } from '../support/token-endpoint.ts'
import { Arena } from './arena.ts'
import { mintsOf } from './corpus.ts'
import { readAnswer, readResponses, Violation } from './messages.ts'
import { mutate, randomFor } from './mutate.ts'

const POOLED = 32
const SETTINGS = {
  OAP_TOKENS_LIFETIME: '1h',
  OAP_TOKENS_MAX_ORGS: '200000',
  OAP_TOKENS_MINT_RATE: '100000',
  OAP_TOKENS_MINT_TIMEOUT: scaledSetting(250),
}
/** They stop all mints for a while, which is tested elsewhere and would leave nothing to see here. */
const STATUSES_THAT_PAUSE: ReadonlySet<number> = new Set([401, 429])
const GOOD_ORG = /^good-/

export interface MintCase {
  readonly org: string
  readonly token: string
  readonly bytes: string
  readonly ends: 'fin' | 'reset' | 'nothing'
}

export async function mintCase(seed: number, index: number): Promise<MintCase> {
  const random = randomFor(seed, index)
  const token = `tok-${randomBytes(9).toString('hex')}`
  const corpus = mintsOf(token)
  for (;;) {
    const message = random.pick(corpus)
    const bytes = random.chance(0.05) ? message : mutate(message, corpus, random)
    const read = await readAnswer(bytes, 'POST', 'fin')
    if (STATUSES_THAT_PAUSE.has(read?.status ?? 0)) continue
    const ends = random.chance(read === undefined ? 0.01 : 0.6)
      ? 'nothing'
      : random.pick(['fin', 'fin', 'reset'] as const)
    return { org: `case-${index}`, token, bytes, ends }
  }
}

export interface MintArena {
  /** While a call hangs, the proxy makes others beside it, also when nobody waits any more. */
  readonly hanging: Set<string>
  readonly arena: Arena
  readonly plans: Map<string, MintCase>
}

export async function startMintArena(): Promise<MintArena> {
  const plans = new Map<string, MintCase>()
  const mint: MintScript = (asked: Mint) => {
    const plan = plans.get(asked.org)
    if (plan === undefined) return asked.issue()
    const { connection } = asked.request
    connection.write(plan.bytes)
    if (plan.ends === 'fin') connection.end()
    if (plan.ends === 'reset') connection.reset()
    return undefined
  }
  return { arena: await Arena.start({ mint, acceptsAnyToken: true }, SETTINGS), plans, hanging: new Set() }
}

/** Two good ones, and the calls for one token that have time within a second. */
const MAX_MINTS = 2 + 8

/** One after another, each followed by two good mints: if half of the orgs failed, the endpoint would count as down. */
export async function runMintCases({ arena, plans, hanging }: MintArena, cases: readonly MintCase[]): Promise<number> {
  let requests = 0
  for (const each of cases) {
    plans.set(each.org, each)
    const { received, end } = await ask(arena, each.org)
    const evidence = { each, received }
    const [response] = (await readResponses(received, () => 'GET', end)) ?? []
    if (response === undefined || !response.isComplete) throw new Violation('not one whole response', evidence)
    const [request, ...others] = arena.service.requests
    if (others.length > 0) throw new Violation('more than one request', evidence)
    if ((response.status === 200) !== (request !== undefined)) throw new Violation('an answer of nobody', evidence)
    if (request !== undefined) {
      requests++
      await checkToken(each, request.values('authorization'))
    } else if (valuesOf(response.fields, 'proxy-status').length !== 1)
      throw new Violation('an error of nobody', evidence)
    const canaries = new Canaries().add('token', each.token)
    if (canaries.search(Buffer.from(received, 'latin1')).length > 0)
      throw new Violation('a token in a response', evidence)
    for (const org of [each.org.replace('case', 'good'), each.org.replace('case', 'good-too')]) {
      const good = await ask(arena, org)
      if ((await readAnswer(good.received, 'GET', 'fin'))?.status !== 200) {
        throw new Violation('a good mint does not work', { each, good, log: arena.lastLines })
      }
    }
    // The proxy asks again for an answer that it cannot use, within `tokens.mintTimeout`.
    const mints = arena.service.tokens.mints.filter(({ org }) => !hanging.has(org))
    if (mints.length > MAX_MINTS) throw new Violation('too many mints', evidence)
    if (mints.some(({ org }) => org !== each.org && !GOOD_ORG.test(org)))
      throw new Violation('a mint for an Org that nobody named', evidence)
    if (each.ends === 'nothing') hanging.add(each.org)
    plans.clear()
    await arena.forget()
  }
  arena.canaries.add('token', 'tok-') // part of each that a case has given out
  arena.checkProcess({ cases })
  return requests
}

function ask(arena: Arena, org: string) {
  return arena.exchange([`GET /v2/x HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: ${org}\r\nConnection: close\r\n\r\n`])
}

/** By the letter: a whole 2xx whose content is JSON with that token. */
async function checkToken(each: MintCase, authorization: readonly string[]): Promise<void> {
  const evidence = { each, authorization }
  // Where the end of the connection ends the content, JSON shows by itself whether it is whole.
  const meant = await readAnswer(each.bytes, 'POST', 'fin')
  if (meant === undefined) throw new Violation('a token of an answer that was none', evidence)
  if (meant.status < 200 || meant.status > 299) throw new Violation('a token of a refusal', evidence)
  const token: unknown = JSON.parse(meant.content.toString()).orgAccessToken
  if (authorization.length !== 1 || authorization[0] !== `Bearer ${token}`) {
    throw new Violation('not the token of the answer', { token, ...evidence })
  }
  if (typeof token !== 'string' || !/^[\x21-\x7e]{1,16384}$/.test(token)) throw new Violation('no token', evidence)
}

export async function endMintArena({ arena }: MintArena): Promise<void> {
  await arena.checkDescriptors(POOLED)
  await arena.checkMemory()
}
