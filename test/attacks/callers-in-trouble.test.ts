/**
 * The attack: a caller names Orgs for which the token endpoint fails, limits, hangs or answers 401, without end, so that another
 * caller gets no token: at a minter, and at the listener of a proxy.
 */

import { describe, expect, onTestFinished, test } from 'vitest'
import { ask, BILLING_KEY, outcome, REPORTS_KEY, startMinter, startSidecar } from '../program/minter/minters.ts'
import { during } from '../support/changes.ts'
import { outcomeOf, request } from '../support/raw-client.ts'
import { type Service, startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'
import type { MintScript } from '../support/token-endpoint.ts'

const CALLERS = `
callers:
  - {name: thief, keyFiles: [billing.key], tokens: true, orgs: ["evil-*"]}
  - {name: good, keyFiles: [reports.key], tokens: true, orgs: ["good-*"]}
`
const FILES = { 'proxy.yaml': CALLERS, 'billing.key': BILLING_KEY, 'reports.key': REPORTS_KEY }
const EVIL_ORGS = 20
const REQUESTS = 25

interface Place {
  /** What the thief and the other caller get for an Org. */
  readonly asThief: (org: string) => Promise<unknown>
  readonly asGood: (org: string) => Promise<unknown>
}

async function atMinter(service: Service): Promise<Place> {
  const minter = await startMinter(service, { 'tokens.mintTimeout': '4s' }, FILES)
  const sidecar = await startSidecar(service, minter, {}, REPORTS_KEY)
  return {
    asThief: (org) => ask(minter.minterPort, { key: BILLING_KEY, org }),
    asGood: (org) => outcome(sidecar, org),
  }
}

async function atListener(service: Service): Promise<Place> {
  const proxy = await startProxy(service, { 'tokens.mintTimeout': '4s' }, FILES)
  onTestFinished(() => proxy[Symbol.asyncDispose]())
  const as = (key: string) => async (org: string) => {
    const head = `GET /v2/x HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: ${org}\r\nX-Proxy-Key: ${key}\r\n\r\n`
    return outcomeOf(await request(proxy.port, head))
  }
  return { asThief: as(BILLING_KEY), asGood: as(REPORTS_KEY) }
}

const troubles: [string, MintScript][] = [
  ['500', () => ({ status: 500 })],
  ['401', () => ({ status: 401 })],
  ['429', () => ({ status: 429, fields: ['Retry-After', '60'] })],
  ['nothing', () => undefined],
]

describe.each([
  ['a minter', atMinter],
  ['a listener', atListener],
])('at %s', (_, place) => {
  test.each(troubles)(
    'the endpoint answers %s for its Orgs from the start: the other loses no request',
    async (_, evil) => {
      await using service = await startService({
        mint: (mint) => (mint.org.startsWith('evil') ? evil(mint) : mint.issue()),
      })
      const { asThief, asGood } = await place(service)
      const attacks = Array.from({ length: EVIL_ORGS }, (_, i) => async () => {
        await asThief(`evil-${i}`)
        await new Promise((resolve) => setTimeout(resolve, 40))
      })
      const outcomes: unknown[] = []
      await during(attacks, async () => {
        await service.origin.waitFor(() => service.tokens.mints.length > 0)
        for (let i = 0; i < REQUESTS; i += 1) outcomes.push(await asGood(`good-${i}`))
      })
      expect(outcomes.filter((each) => each !== 200)).toEqual([])
    },
  )
})
