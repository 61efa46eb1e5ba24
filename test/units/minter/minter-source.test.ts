import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import * as clock from '../../../src/clock.ts'
import { MinterSource } from '../../../src/minter/minter-source.ts'
import type { OrgId } from '../../../src/org-id.ts'

beforeEach(() => {
  vi.useFakeTimers({ now: 0, toFake: ['setTimeout', 'clearTimeout', 'Date', 'performance'] })
})
afterEach(() => {
  vi.useRealTimers()
})

test.each([
  ['longer', 5_000, false],
  ['shorter', 500, true],
])('a token whose stated life is %s than the call', async (_, statedLifeMs, hasEnded) => {
  const given = { id: 'an-id', token: 'a-token', ageMs: 0, statedLifeMs }
  const source = new MinterSource({
    minter: 'http://minter',
    credential: () => [],
    call: async () => {
      vi.advanceTimersByTime(1_000)
      return { status: 200, fields: [], trailers: [], content: Buffer.from(JSON.stringify(given)) }
    },
    observer: { minterAsked: () => {} },
  })
  const token = await source.mint('acme' as OrgId)
  expect(token.hasEndedAt(clock.now(), clock.day())).toBe(hasEnded)
})
