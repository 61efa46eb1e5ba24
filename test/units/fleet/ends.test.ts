/** Replicas that meet the ends of shared tokens, with a virtual clock and a store without faults. */

import { expect, test } from 'vitest'
import type { OrgId } from '../../../src/org-id.ts'
import { Orgs } from '../../../src/token/orgs.ts'
import { AccessToken, type MintOptions } from '../../../src/token/token-source.ts'
import { ORGS_OPTIONS } from '../../support/orgs-options.ts'
import { Random } from '../../support/seed.ts'
import { throughOrgs, World } from '../token/simulation/simulation.ts'

const REPLICAS = 10
const ORGS = 50
const OTHERS = 50
const LIFE_MS = 20_000
const LIVES = 5

test.each([
  ['a token that ends costs one mint, and no client sees that', 250, false],
  ['where a new token ends the one before, and others mint, no ping-pong', 40, true],
])('ten replicas: %s', async (_, perSecond, isSingle) => {
  const random = new Random(20261122)
  const world = new World()
  const issuedAt = new Map<string, number>()
  const store = new Map<OrgId, AccessToken>()
  const mints = new Map<OrgId, Promise<AccessToken>>()
  let mintCount = 0
  const rejections = Array<number>(LIVES).fill(0)

  async function mint(org: OrgId, { replaces }: MintOptions = {}): Promise<AccessToken> {
    await (mints.get(org) ?? world.sleep(1))
    const shared = store.get(org)
    if (shared !== undefined && shared.mintedAt > (replaces?.mintedAt ?? -1)) {
      return new AccessToken(shared.reveal(), shared.mintedAt, undefined, shared.mintedAt)
    }
    const token = new AccessToken(`token-${mintCount}`, world.now(), undefined, world.now())
    if (isSingle && shared !== undefined) issuedAt.delete(shared.reveal())
    issuedAt.set(token.reveal(), world.now())
    mintCount += 1
    const minted = world.sleep(20).then(() => token)
    mints.set(org, minted)
    await minted
    store.set(org, token)
    mints.delete(org)
    return token
  }
  const replicas = Array.from({ length: REPLICAS }, (_, i) => {
    const own = random.numbered(i)
    const clock = { ...world.clock, random: () => own.next() }
    return new Orgs({ ...ORGS_OPTIONS, sharesTokens: true, clock }, { mint })
  })
  const send = async (token: AccessToken) => {
    await world.sleep(2)
    const isGood = world.now() - (issuedAt.get(token.reveal()) ?? Number.NaN) < LIFE_MS
    if (!isGood) rejections[Math.floor(world.now() / LIFE_MS) - 1]! += 1
    return { status: isGood ? 200 : 401 }
  }
  const statuses = new Set<number>()
  const anyOrg = () => `org-${random.integer(1, ORGS)}` as OrgId
  const next = () => {
    const isKept = !isSingle || random.next() >= 0.05
    const answer = throughOrgs(random.pick(replicas), anyOrg(), { isKept, staysKept: isKept, isSafe: true }, send)
    if (isKept) answer.then((status) => statuses.add(status))
    world.after((1_000 / perSecond) * (0.5 + random.next()), next)
  }
  next()
  // Now and then, another party mints.
  const end = () => issuedAt.delete(store.get(anyOrg())?.reveal() ?? '')
  if (isSingle) for (let i = 0; i < OTHERS; i++) world.after(random.next() * 60_000, end)
  await world.runUntil((LIVES + 1) * LIFE_MS - 1)
  expect(statuses).toEqual(new Set([200]))
  expect(mintCount).toBeLessThan((isSingle ? 1.3 : 1.1) * (LIVES + 1) * ORGS + (isSingle ? OTHERS : 0))
  // Each replica finds out by itself that its token has ended: with one request, or with a repeat if it was accepted lately.
  for (const count of rejections) expect(count / ORGS).toBeLessThan(2 * REPLICAS)
})
