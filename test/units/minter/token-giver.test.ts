/** Which token a sidecar gets, and which claims of rejection cause a mint. */

import { expect, test } from 'vitest'
import * as realClock from '../../../src/clock.ts'
import { TokenGiver } from '../../../src/minter/token-giver.ts'
import type { OrgId } from '../../../src/org-id.ts'
import type { Clock } from '../../../src/token/org.ts'
import { Orgs } from '../../../src/token/orgs.ts'
import { ORGS_OPTIONS } from '../../support/orgs-options.ts'
import { ScriptedSource } from '../token/scripted-source.ts'

const ACME = 'acme' as OrgId
const LIFE_MS = 60_000

/** A minter that holds a token of `acme`, and two sidecars. */
async function setUp(ofClock: Partial<Clock> = {}) {
  let nowMs = 1_000_000
  const now = () => nowMs
  const source = new ScriptedSource(now)
  const clock = { ...realClock, now, day: now, random: () => 0, ...ofClock }
  const giver = new TokenGiver(new Orgs({ ...ORGS_OPTIONS, clock }, source))
  const sidecar = (requester = {}) => ({
    ask: async (rejected?: string) => (await giver.give(ACME, { requester }, rejected)).given.id,
  })
  const [one, other] = [sidecar(), sidecar()]
  const issue = () => source.last.issue(undefined, now() + LIFE_MS)
  const first = one.ask()
  await issue()
  const pass = (ms: number) => {
    nowMs += ms
  }
  return { source, one, other, held: await first, issue, pass }
}

test('a claim whose mint hangs makes no other sidecar wait', async () => {
  const { source, one, other, held } = await setUp()
  const claimed = one.ask(held).catch(() => 'failed')
  expect(source.mints).toHaveLength(2)
  expect(await Promise.race([other.ask(), claimed])).toBe(held)
  await source.last.fail('token_endpoint_timeout')
  expect(await claimed).toBe('failed')
})

test('a claim that joins the mint of another does not count: the next one may cause a mint', async () => {
  const { source, one, other, held, issue } = await setUp()
  const claims = [one.ask(held), other.ask(held)]
  await issue()
  const [second, same] = await Promise.all(claims)
  expect(same).toBe(second)
  expect(await one.ask(second)).toBe(second) // once in the cooldown
  expect(source.mints).toHaveLength(2)
  const third = other.ask(second)
  await issue()
  expect(await third).not.toBe(second)
  expect(source.mints).toHaveLength(3)
})

test('a claim that gives up counts: its mint may bring a token. If that fails, the next claim may cause a mint', async () => {
  let isPatient = true
  const within: Clock['within'] = async (_, work) => (isPatient ? await work : undefined)
  const { source, one, other, held, issue } = await setUp({ within })
  isPatient = false
  await expect(one.ask(held)).rejects.toThrow('as long as it may')
  isPatient = true
  await issue()
  const second = await other.ask()
  expect(second).not.toBe(held)
  const again = one.ask(second)
  expect(source.mints).toHaveLength(2)
  expect(await again).toBe(second)
  isPatient = false
  await expect(other.ask(second)).rejects.toThrow('as long as it may')
  isPatient = true
  await source.last.fail('token_endpoint_timeout')
  const third = other.ask(second)
  expect(source.mints).toHaveLength(4)
  await issue()
  expect(await third).not.toBe(second)
})

test('in the last tenth, a sidecar gets the token at once, and the minter renews it', async () => {
  const { source, one, other, held, issue, pass } = await setUp()
  pass(LIFE_MS * 0.95)
  expect([await one.ask(), await other.ask()]).toEqual([held, held])
  expect(source.mints.map(({ options }) => options.reason)).toEqual(['cold', 'refresh'])
  await issue()
  expect(await other.ask()).not.toBe(held)
})
