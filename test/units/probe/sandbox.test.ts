/** What `probe` finds of the sandbox, switch by switch, and what follows from it. */

import { describe, expect, test } from 'vitest'
import { startSandbox } from '../../../src/sandbox/sandbox.ts'
import type { Switches } from '../../../src/sandbox/switches.ts'
import { type ProbeSettings, runProbe } from './run-probe.ts'

async function probeSandbox(switches: Partial<Switches>, settings: ProbeSettings = {}) {
  await using sandbox = await startSandbox(switches)
  const probed = await runProbe(sandbox, settings)
  const { mints, requests, rejected } = sandbox.stats().totals
  expect(mints).toBeLessThanOrEqual(20)
  expect(requests + rejected).toBeLessThanOrEqual(200)
  return { ...probed, switches: probed.report.sandbox, settings: probed.report.settings }
}

test('the service of the specification: nothing follows', async () => {
  const { exitCode, finding, switches, settings, report } = await probeSandbox({})
  expect([exitCode, settings, report.notes]).toEqual([0, {}, []])
  expect(switches).toMatchObject({ sameToken: false, oneTokenPerOrg: false, tokenSettleMs: 0, expiredStatus: 401 })
  expect(finding('token endpoint')).toMatch(/^seen: POST \S+\/v2\/orgs\/\{orgId\}\/access gives tokens\. \(200, JSON/)
  expect(finding('answer')).toBe('seen: The token is the member orgAccessToken. (members: orgAccessToken)')
  expect(finding('unknown Org')).toMatch(/^seen: .*refused with 403/)
  expect(finding('life in use')).toBe('could not be asked:  (it takes time: give --wait)')
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

  test('the header of the configuration makes the sandbox alike', async () => {
    const { switches, settings } = await probeSandbox(
      { tokenHeader: 'X-Token: {token}' },
      { env: { OAP_TOKENS_HEADER: 'X-Token: {token}' } },
    )
    expect([switches['tokenHeader'], settings]).toEqual(['x-token: {token}', {}])
  })

  test('another member that looks like a token is taken for it', async () => {
    const { settings, finding } = await probeSandbox({ tokenField: 'data.token', statedEnds: ['expires_in'] })
    expect(settings).toEqual({ field: 'data.token' })
    expect(finding('answer')).toBe('seen: The token is the member data.token. (members: data.token, data.expires_in)')
  })

  test('another method is named, and not tried', async () => {
    const { exitCode, finding, report } = await probeSandbox({ tokenEndpoint: 'PUT /v2/orgs/{orgId}/access' })
    expect(exitCode).toBe(1)
    expect(finding('token endpoint')).toContain('gives no token. (405, it takes PUT: set tokens.endpoint')
    expect(report.settings).toEqual({})
    expect(report.sandbox).not.toHaveProperty('tokenField')
  })
})

describe('stated ends', () => {
  test.each(['jwt', 'expires_in', 'expiresIn', 'expires_at', 'expiresAt'] as const)('%s', async (by) => {
    const { switches, finding } = await probeSandbox({ statedEnds: [by], tokenLifetimeMs: 90_000 })
    expect(switches['statedEnds']).toEqual([by])
    expect(Math.abs(Number(switches['tokenLifetimeMs']) - 90_000)).toBeLessThan(2_000)
    expect(finding('stated end')).toMatch(/^seen: A token states that it ends in (?:89|90|91) s\./)
  })

  test('they are held against the clock of the service', async () => {
    const { switches, finding } = await probeSandbox({
      statedEnds: ['jwt', 'expires_in'],
      clockOffsetMs: -3_600_000,
      tokenLifetimeMs: 90_000,
    })
    expect(Math.abs(Number(switches['tokenLifetimeMs']) - 90_000)).toBeLessThan(2_000)
    expect(Math.abs(Number(switches['clockOffsetMs']) + 3_600_000)).toBeLessThan(3_000)
    expect(finding('stated end')).toContain('60 min behind our clock')
  })
})

test('limits that headers tell', async () => {
  const { finding } = await probeSandbox({ mintLimit: { count: 30, windowMs: 60_000 } })
  expect(finding('limits')).toMatch(/^seen: Answers tell a limit\. \(mints: x-ratelimit-limit: 30, x-ratelimit-rem/i)
})

describe('a token endpoint in trouble', () => {
  test.each<[string, Partial<Switches>, string]>([
    ['a fault', { mintFaults: [{ kind: 'status', status: 500 }] }, '500'],
    ['a web page', { mintFaults: [{ kind: 'html' }] }, '200, HTML'],
    ['a reset', { mintFaults: [{ kind: 'reset' }] }, 'connection_terminated'],
    ['wrong credentials', { appSecret: 'another' }, '401'],
    ['an Org that is not linked', { linked: [] }, '403'],
    ['another path', { tokenEndpoint: 'POST /v2/other/{orgId}/access' }, '401'],
  ])('%s: all that depends on a token could not be asked', async (_, switches, text) => {
    await using sandbox = await startSandbox(switches)
    const appSecret = 'sandbox-secret-that-opens-nothing-else'
    const { exitCode, finding, report } = await runProbe({ ...sandbox, baseUrl: sandbox.baseUrl, appSecret })
    expect(exitCode).toBe(1)
    expect(finding('token endpoint')).toContain(`gives no token. (${text}`)
    for (const about of ['same token', 'one live token', 'delay', 'made-up token']) {
      expect(finding(about)).toMatch(/^could not be asked: {2}\(a mint brought no token: /)
    }
    expect(report.settings).toEqual({})
  })
})

test('a sandbox that is started like a service is found to be like it', async () => {
  const { switches: found } = await probeSandbox({
    tokenField: 'data.token',
    statedEnds: ['expires_in'],
    tokenLifetimeMs: 60_000,
    oneTokenPerOrg: true,
    expiredStatus: 403,
    unlinkedStatus: 404,
  })
  const again = await probeSandbox(found as Partial<Switches>)
  const { tokenLifetimeMs: _, ...rest } = again.switches
  expect(found).toMatchObject(rest)
  expect(again.settings).toEqual({ field: 'data.token', rejectedStatuses: [401, 403] })
})
