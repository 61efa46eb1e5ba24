/** The probe recovers the switches of the sandbox, tells nothing wrong, and keeps to its budget. */

import { describe, expect, test } from 'vitest'
import { BUDGET } from '../../../src/probe/asker.ts'
import { renderPage } from '../../../src/probe/report.ts'
import { type Sandbox, startSandbox } from '../../../src/sandbox/sandbox.ts'
import { parseSwitches, type Switches } from '../../../src/sandbox/switches.ts'
import { type Probed, type ProbeSettings, runProbe } from './run-probe.ts'

/** What the probe may not know, and what it measures. */
const MEASURED: readonly string[] = [
  'tokenLifetimeMs',
  'clockOffsetMs',
  'tokenSettleMs',
  'tokenSettleShare',
  'linked',
  'mintLimit',
]

async function probeSandbox(switches: Partial<Switches>, settings: ProbeSettings = {}) {
  await using sandbox = await startSandbox(switches)
  const probed = await runProbe(sandbox, settings)
  expectTruth(switches, probed)
  expectWithinBudget(sandbox)
  return { ...probed, settings: probed.report.settings, switches: probed.report.sandbox }
}

/** Whatever it says of the service is so. */
function expectTruth(switches: Partial<Switches>, { report }: Probed): void {
  const actual: Readonly<Record<string, unknown>> = { ...parseSwitches(switches) }
  const found = Object.entries(report.sandbox).filter(([name]) => !MEASURED.includes(name))
  for (const [name, value] of found) expect([name, value]).toEqual([name, actual[name]])
  // They can start a sandbox.
  expect(parseSwitches(report.sandbox)).toMatchObject(Object.fromEntries(found))
  expect(
    renderPage(report)
      .split('\n')
      .filter((line) => line.length > 100),
  ).toEqual([])
}

function expectWithinBudget(sandbox: Sandbox): void {
  const { mints, requests, rejected } = sandbox.stats().totals
  expect(mints).toBeLessThanOrEqual(BUDGET.mints)
  expect(requests + rejected).toBeLessThanOrEqual(BUDGET.gets)
}

test('the sandbox as it is', async () => {
  const { exitCode, settings, switches, finding, report } = await probeSandbox({})
  expect([exitCode, settings]).toEqual([0, {}])
  expect(switches).toMatchObject({ sameToken: false, oneTokenPerOrg: false, tokenSettleMs: 0, expiredStatus: 401 })
  expect(finding('token endpoint')).toMatch(
    /^seen: POST \S+\/v2\/orgs\/\{orgId\}\/access gives tokens\. \(2 of 2 calls/,
  )
  expect(finding('answer')).toContain('the member orgAccessToken; it is opaque')
  expect(finding('unknown Org')).toMatch(/^seen: .*refused with 403/)
  expect(finding('keep-alive')).toMatch(/^seen: .* for 5 s/)
  expect(finding('life')).toMatch(/^could not be asked: .*--wait/)
  expect(report.findings.every(({ says, evidence }) => says !== '' && evidence !== '')).toBe(true)
})

describe('the call of the token endpoint', () => {
  test('that of the configuration is a setting that follows', async () => {
    const endpoint = 'GET /v2.1/tenants/{orgId}/tokens/new'
    const { settings } = await probeSandbox(
      { tokenEndpoint: endpoint, tokenField: 'data.token' },
      { path: '/v2.1/example/endpoint', env: { OAP_TOKENS_ENDPOINT: endpoint, OAP_TOKENS_FIELD: 'data.token' } },
    )
    expect(settings).toEqual({ endpoint, field: 'data.token' })
  })

  test('another member that looks like a token is taken for it', async () => {
    const { settings, finding } = await probeSandbox({ tokenField: 'data.token', statedEnds: ['expires_in'] })
    expect(settings).toEqual({ field: 'data.token' })
    expect(finding('answer')).toBe(
      'seen: The token is the member data.token, not orgAccessToken; it is opaque. (members: data.token, data.expires_in)',
    )
  })

  test('another method is named, and not tried', async () => {
    await using sandbox = await startSandbox({ tokenEndpoint: 'PUT /v2/orgs/{orgId}/access' })
    const { exitCode, finding, report } = await runProbe(sandbox)
    expect(exitCode).toBe(1)
    expect(finding('token endpoint')).toContain('gives no token: it takes PUT: set tokens.endpoint. (405')
    expect(report.settings).toEqual({})
    expect(report.sandbox).not.toHaveProperty('tokenField')
  })
})

describe('stated ends', () => {
  test.each(['jwt', 'expires_in', 'expiresIn', 'expires_at', 'expiresAt'] as const)('%s', async (by) => {
    const { switches, finding } = await probeSandbox({ statedEnds: [by], tokenLifetimeMs: 90_000 })
    expect(switches['statedEnds']).toEqual([by])
    expect(Math.abs(Number(switches['tokenLifetimeMs']) - 90_000)).toBeLessThan(2_000)
    expect(finding('answer')).toContain(by === 'jwt' ? 'a JWT' : 'opaque')
  })

  test('they are held against the clock of the service', async () => {
    const { switches, finding } = await probeSandbox({
      statedEnds: ['jwt', 'expires_in'],
      clockOffsetMs: -3_600_000,
      tokenLifetimeMs: 90_000,
    })
    expect(Math.abs(Number(switches['tokenLifetimeMs']) - 90_000)).toBeLessThan(2_000)
    expect(Math.abs(Number(switches['clockOffsetMs']) + 3_600_000)).toBeLessThan(3_000)
    expect(finding('clock')).toMatch(/^seen: The service's clock is 60 min behind ours/)
  })
})

describe('what becomes of a token', () => {
  test('the same one again', async () => {
    const { switches, finding } = await probeSandbox({ sameToken: true })
    expect(switches).toMatchObject({ sameToken: true })
    expect(finding('one live token')).toMatch(/^could not be asked: .*the same token again/)
  })

  test('one live token for an Org', async () => {
    const { switches, finding, report } = await probeSandbox({ oneTokenPerOrg: true })
    expect(switches).toMatchObject({ oneTokenPerOrg: true })
    expect(finding('one live token')).toMatch(/^seen: A new token ends the one before, at once/)
    expect(report.notes.join()).toContain('docs/fleet.md')
  })

  test('a life that ends during the probe is not taken for that', async () => {
    const { switches } = await probeSandbox({ tokenLifetimeMs: 150 }, { graceMs: 400 })
    expect(switches).not.toHaveProperty('oneTokenPerOrg', true)
  })
})

describe('the delay until a new token is known', () => {
  test('everywhere', async () => {
    const { switches, finding } = await probeSandbox({ tokenSettleMs: 600 })
    expect(finding('delay')).toMatch(/^seen: .*late: the delay was between/)
    expect(Number(switches['tokenSettleMs'])).toBeGreaterThanOrEqual(600)
    expect(Number(switches['tokenSettleMs'])).toBeLessThan(1_200)
    expect(switches['tokenSettleShare']).toBe(1)
  })

  test('at some back ends', async () => {
    const { switches, finding } = await probeSandbox({ tokenSettleMs: 600, tokenSettleShare: 0.25 })
    expect(finding('delay')).toMatch(/1[456] of 20 connections accepted it at once/)
    expect(Number(switches['tokenSettleMs'])).toBeGreaterThanOrEqual(600)
    expect(Math.abs(Number(switches['tokenSettleShare']) - 0.25)).toBeLessThanOrEqual(0.05)
  })

  test('together with one live token', async () => {
    const { switches } = await probeSandbox({ tokenSettleMs: 300, oneTokenPerOrg: true })
    expect(Number(switches['tokenSettleMs'])).toBeGreaterThanOrEqual(300)
  })
})

describe('statuses', () => {
  test.each([
    [403, [401, 403], '403, challenge Bearer error="invalid_token", application/json'],
    [302, [302, 401], '302, a redirect to login.example, application/json'],
    [404, undefined, '404, challenge Bearer error="invalid_token", application/json'],
  ])('%d for a token that is not good', async (expiredStatus, rejectedStatuses, evidence) => {
    const { settings, switches, finding } = await probeSandbox({ expiredStatus })
    expect(settings).toEqual(rejectedStatuses === undefined ? {} : { rejectedStatuses })
    expect(switches).toMatchObject({ expiredStatus })
    expect(finding('made-up token')).toBe(`seen: A made-up token gets ${expiredStatus}. (${evidence})`)
  })

  test('of a token that a new one has ended', async () => {
    const { settings, finding } = await probeSandbox({ expiredStatus: 403, oneTokenPerOrg: true })
    expect(settings).toEqual({ rejectedStatuses: [403] })
    expect(finding('ended token')).toMatch(/^seen: A token that has ended gets 403/)
  })

  test('of an Org that does not exist', async () => {
    const { switches } = await probeSandbox({ unlinkedStatus: 404 })
    expect(switches).toMatchObject({ unlinkedStatus: 404 })
    const { finding } = await probeSandbox({ linked: '*' })
    expect(finding('unknown Org')).toMatch(/^not seen: An Org with a made-up id is not refused/)
  })
})

describe('limits', () => {
  test('that fields tell', async () => {
    const mintLimit = { count: 30, windowMs: 60_000 }
    const { switches, finding, report } = await probeSandbox({ mintLimit })
    expect(switches).toMatchObject({ mintLimit })
    expect(finding('limits')).toMatch(/^seen: .*mints: x-ratelimit-limit: 30, x-ratelimit-remaining: 29/)
    expect(report.notes.join()).toContain('tokens.mintRate: 0.5')
  })

  test('that are met: nothing more is sent', async () => {
    await using sandbox = await startSandbox({ mintLimit: { count: 1, windowMs: 60_000 } })
    const { finding } = await runProbe(sandbox)
    expect(finding('limits')).toMatch(/^seen: A limit was met after 2 mints: 429\. .*retry-after: 60/)
    expect(finding('unknown Org')).toBe(
      'could not be asked: How an Org that does not exist is refused. (the token endpoint told a limit)',
    )
    expect(sandbox.stats().totals.mints).toBe(2)
  })

  test('of the GETs', async () => {
    await using sandbox = await startSandbox({ requestLimit: { count: 10, windowMs: 60_000 } })
    const { finding } = await runProbe(sandbox)
    expect(finding('limits')).toMatch(/^seen: A limit was met/)
    expect(sandbox.stats().totals.requests).toBeLessThan(30)
  })
})

describe('with --wait, lives', () => {
  test('regular', async () => {
    const { settings, switches, finding } = await probeSandbox({ tokenLifetimeMs: 700 }, { wait: '6s' })
    expect(finding('life')).toMatch(/^seen: A token lives .*, in use or not\./)
    expect(Math.abs(Number(switches['tokenLifetimeMs']) - 700)).toBeLessThan(100)
    expect(switches['tokenLifetimeKind']).toBe('regular')
    expect(Number.parseInt(String(settings['lifetime']), 10)).toBeLessThanOrEqual(700)
    expect(finding('ended token')).toMatch(/^seen: A token that has ended gets 401/)
  })

  test('sliding', async () => {
    const { switches, finding } = await probeSandbox(
      { tokenLifetimeMs: 500, tokenLifetimeKind: 'sliding' },
      { wait: '6s' },
    )
    expect(finding('life')).toMatch(/^seen: A use makes a token live longer/)
    expect(switches['tokenLifetimeKind']).toBe('sliding')
  })

  test('irregular: never taken for regular or sliding', async () => {
    await probeSandbox({ tokenLifetimeMs: 600, tokenLifetimeKind: 'irregular' }, { wait: '6s' })
  })

  test('longer than the wait', async () => {
    const { finding, switches } = await probeSandbox({}, { wait: '1s' })
    expect(finding('life')).toMatch(/^not seen: No token ended within/)
    expect(switches).not.toHaveProperty('tokenLifetimeKind')
  })

  test('of one live token for an Org', async () => {
    const { finding, switches } = await probeSandbox({ tokenLifetimeMs: 700, oneTokenPerOrg: true }, { wait: '6s' })
    expect(finding('life')).toContain('no tokens were left unused beside it')
    expect(Math.abs(Number(switches['tokenLifetimeMs']) - 700)).toBeLessThan(100)
  })
})

describe('a service in trouble', () => {
  test.each<[string, Partial<Switches>, RegExp]>([
    ['a fault', { mintFaults: [{ kind: 'status', status: 500 }] }, /gives no token: it has a fault\. \(500/],
    ['a web page', { mintFaults: [{ kind: 'html' }] }, /the answer is no JSON object\. \(200, text\/html\)/],
    ['a reset', { mintFaults: [{ kind: 'reset' }] }, /no answer came\. \(connection_terminated/],
    ['wrong credentials', { appSecret: 'another' }, /it rejects the App credentials, or is not the address/],
    ['an Org that is not linked', { linked: [] }, /it refuses this Org\. \(403/],
    ['another path', { tokenEndpoint: 'POST /v2/other/{orgId}/access' }, /it rejects the App credentials, or is not/],
  ])('%s: all that depends on a token could not be asked', async (_, switches, says) => {
    await using sandbox = await startSandbox(switches)
    const { exitCode, finding, report } = await runProbe({
      ...sandbox,
      baseUrl: sandbox.baseUrl,
      appSecret: 'sandbox-secret-that-opens-nothing-else',
    })
    expect(exitCode).toBe(1)
    expect(finding('token endpoint')).toMatch(says)
    for (const about of ['same token', 'one live token', 'delay', 'made-up token', 'life']) {
      expect(finding(about)).toMatch(/^could not be asked: /)
    }
    expect(report.settings).toEqual({})
  })

  test('a path that tells good tokens from bad ones badly', async () => {
    const sandboxes = [
      { requestFaults: [{ kind: 'status', status: 404 }] },
      { requestFaults: [{ kind: 'status', status: 500 }] },
      { requestFaults: [{ kind: 'html' }] },
    ] as const
    for (const switches of sandboxes) {
      await using sandbox = await startSandbox(switches)
      const { finding, report } = await runProbe(sandbox, { graceMs: 10 })
      expect(finding('delay')).toMatch(/^could not be asked: .*give another --path/)
      expect(finding('one live token')).toMatch(/^could not be asked/)
      expect(report.sandbox).not.toHaveProperty('oneTokenPerOrg')
    }
  })
})

test('a sandbox that is started like a service is found to be like it', async () => {
  const switches: Partial<Switches> = {
    tokenField: 'data.token',
    statedEnds: ['expires_in'],
    tokenLifetimeMs: 60_000,
    oneTokenPerOrg: true,
    expiredStatus: 403,
    unlinkedStatus: 404,
  }
  const { switches: found } = await probeSandbox(switches)
  const again = await probeSandbox(found as Partial<Switches>)
  const { tokenLifetimeMs: _, tokenSettleMs: __, ...rest } = again.switches
  expect(found).toMatchObject(rest)
  expect(again.settings).toEqual({ field: 'data.token', rejectedStatuses: [403] })
})
