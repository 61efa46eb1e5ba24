import { expect, test } from 'vitest'
import { check, renderSettings } from '../../../src/cli/check.ts'
import { loadConfig } from '../../../src/config/load.ts'
import { settings } from '../../../src/config/settings.ts'
import { certificateFiles } from '../../support/certificates.ts'
import { makeFolder } from '../../support/folder.ts'
import type { Reply } from '../../support/origin-connection.ts'
import { startService } from '../../support/service.ts'
import { GOOD } from '../config/refusal.ts'

async function run(env: Record<string, string>, mint?: string) {
  let printed = ''
  const exitCode = await check({ mint }, { ...GOOD, ...env }, (text) => (printed += text))
  return { exitCode, printed }
}

test('settings are printed in three aligned columns with their sources', async () => {
  await using folder = await makeFolder()
  const file = await folder.write('proxy.yaml', 'tokens: {warm: [acme, globex]}')
  const shown = renderSettings(await loadConfig({ file, env: { ...GOOD, OAP_LISTEN_IDLE_TIMEOUT: '5s' } }))
  const rows = shown.split('\n').filter((line) => line !== '')
  expect(rows.map((row) => row.split(' ', 1)[0])).toEqual(settings.map(({ key }) => key))
  const columns = new Map(rows.map((row) => [row.split(' ', 1)[0], row.split(/ {2,}/)]))
  expect(columns.get('listen.idleTimeout')).toEqual(['listen.idleTimeout', '5s', 'OAP_LISTEN_IDLE_TIMEOUT'])
  expect(columns.get('tokens.warm')).toEqual(['tokens.warm', 'acme, globex', `${file}:1:16`])
  expect(columns.get('listen.headersTimeout')).toEqual(['listen.headersTimeout', '10s', 'default'])
  expect(columns.get('listen.hosts')).toEqual(['listen.hosts', '[]', 'default'])
  expect(columns.get('origin.caFile')).toEqual(['origin.caFile', '-', 'not set'])
  expect(new Set(rows.map((row) => /(default|not set|OAP_\w+|\/\S+)$/.exec(row)?.index)).size).toBe(1)
})

test('the secret is masked, and warnings follow', async () => {
  const { exitCode, printed } = await run({ OAP_LISTN_ADDRESS: 'x' })
  expect(exitCode).toBe(0)
  expect(printed).toMatch(/^appSecret +\[redacted\] +OAP_APP_SECRET$/m)
  expect(printed).not.toContain(GOOD.OAP_APP_SECRET)
  expect(printed).toContain('\nwarning: OAP_LISTN_ADDRESS is not a setting: did you mean')
  expect(printed).toContain('\nwarning: appSecret (OAP_APP_SECRET): is in the environment')
  expect(printed).toContain('\nThe configuration can be used.\n')
})

test('a certificate that has ended is refused: it would replace no good one', async () => {
  const { certificate, key } = certificateFiles('expired')
  const env = { OAP_ORIGIN_CERT_FILE: certificate, OAP_ORIGIN_KEY_FILE: key }
  await expect(run(env)).rejects.toThrow(/^origin\.certFile \(OAP_ORIGIN_CERT_FILE\): has ended at 2\S+: put a new/)
})

test.each([
  ['a token', undefined, 0, /^mint: got a token for acme\n {2}POST \S+ \(\d+ ms\)\n$/],
  ['403', { status: 403 }, 1, /org_access_refused\n.*answered 403\.\n {2}Check the org id/s],
  [
    '401',
    { status: 401 },
    1,
    /_rejected\n.*401 to POST \S+: it rejects the App .*, or this is not its address: .*\.\n {2}Check appId/s,
  ],
  [
    'a web page',
    { status: 200, content: '<html>' },
    1,
    /_invalid\n.*200 without a usable orgAccessToken to POST \S+: its content is HTML or XML, not JSON\.\n {2}Check .*: "org-access-proxy probe --org acme" shows/s,
  ],
  ['429', { status: 429 }, 1, /token_endpoint_rate_limited\n.*answered 429: it limits the rate of calls\.\n$/s],
] as const)('--mint: %s', async (_, reply: Reply | undefined, expected, pattern) => {
  await using service = await startService({ mint: (mint) => reply ?? mint.issue() })
  const { baseUrl: OAP_BASE_URL, appId: OAP_APP_ID, appSecret: OAP_APP_SECRET } = service
  const { exitCode, printed } = await run({ OAP_BASE_URL, OAP_APP_ID, OAP_APP_SECRET }, 'acme')
  const told = printed.slice(printed.indexOf('mint: '))
  expect(exitCode).toBe(expected)
  expect(told).toMatch(pattern)
  expect(told).toContain(`POST ${service.baseUrl}/v2/orgs/acme/access (`)
  expect(service.tokens.mints).toHaveLength(1)
  expect(printed).not.toContain(service.tokens.marker)
})

test.each([
  [{}, 'a/b', 'not an org id'],
  [{}, '..', 'not an org id'],
  [{ OAP_ORGS_ALLOW: 'acme' }, 'globex', 'globex is not in orgs.allow'],
])('--mint is not tried for an org that no request could name: %j %s', async (env, org, reason) => {
  const { exitCode, printed } = await run(env as Record<string, string>, org)
  expect(exitCode).toBe(1)
  expect(printed).toContain(`mint: not tried: ${reason}`)
})

test('the call that gets a token is printed', async () => {
  const { printed } = await run({ OAP_BASE_URL: 'https://example.com/api/' })
  expect(printed).toContain('\nTokens come from: POST https://example.com/api/v2/orgs/{orgId}/access\n')
})

test('--mint calls the endpoint of the configuration', async () => {
  await using service = await startService({
    script: () => ({ content: '{"data":{"token":"t"}}' }),
    acceptsAnyToken: true,
  })
  const env = { OAP_BASE_URL: service.baseUrl, OAP_TOKENS_FIELD: 'data.token' }
  const { exitCode, printed } = await run({ ...env, OAP_TOKENS_ENDPOINT: 'GET /v2.1/tenants/{orgId}/token' }, 'a:1')
  expect([exitCode, printed.slice(printed.indexOf('mint: '))]).toEqual([
    0,
    expect.stringMatching(/^mint: got a token for a:1\n {2}GET \S+\/v2\.1\/tenants\/a%3A1\/token \(\d+ ms\)\n$/),
  ])
  const [request] = service.requests
  expect([request?.method, request?.values('content-length'), request?.contentBytes]).toEqual(['GET', [], 0])
})
