import { describe, expect, test } from 'vitest'
import { type CheckParts, check, renderSettings } from '../../src/cli/check.ts'
import { loadConfig } from '../../src/config/load.ts'
import { settings } from '../../src/config/settings.ts'
import { TokenError } from '../../src/errors.ts'
import { readVersion } from '../../src/version.ts'
import { makeFolder } from '../config/folder.ts'
import { GOOD } from '../config/refusal.ts'

async function run(env: Record<string, string>, org?: string, mint?: CheckParts['mint']) {
  let printed = ''
  const exitCode = await check(
    { file: undefined, mint: org },
    { ...GOOD, ...env },
    {
      mint: mint ?? (() => expect.fail('nobody asked for a mint')),
      stdout: { write: (text) => (printed += text) },
    },
  )
  return { exitCode, printed }
}

describe('the settings', () => {
  test('are printed in three aligned columns with their sources', async () => {
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

  test('the secret is masked', async () => {
    const { exitCode, printed } = await run({})
    expect(exitCode).toBe(0)
    expect(printed).toMatch(/^appSecret +\[redacted\] +OAP_APP_SECRET$/m)
    expect(printed).not.toContain(GOOD.OAP_APP_SECRET)
  })

  test('warnings follow, one line each', async () => {
    const { printed } = await run({ OAP_LISTN_ADDRESS: 'x' })
    expect(printed).toContain('\nwarning: OAP_LISTN_ADDRESS is not a setting and is ignored: did you mean')
    expect(printed).toContain('\nwarning: appSecret (OAP_APP_SECRET): is in the environment')
  })
})

describe('the mint', () => {
  const url = 'https://api.example.com/v2/orgs/acme/access'
  const settled = { url, reason: 'cold', durationMs: 7 } as const

  test('that succeeds is printed with its URL and duration', async () => {
    const mint: CheckParts['mint'] = async (_, org) => ({ ...settled, org, outcome: 'ok' })
    const { exitCode, printed } = await run({}, 'acme', mint)
    expect(exitCode).toBe(0)
    expect(printed).toMatch(/\nmint: got a token for acme\n {2}POST https:\S+\/v2\/orgs\/acme\/access \(7 ms\)\n$/)
  })

  test.each([
    ['org_access_refused', 404, 'Check that baseUrl is right: a wrong address answers 404, too.'],
    ['org_access_refused', 403, 'Check the org id, and that the Org is linked with the App.'],
    ['app_credentials_rejected', undefined, 'Check appId, and the secret in appSecretFile.'],
    ['token_response_invalid', undefined, 'Check baseUrl: a web page or another service may answer'],
    ['token_endpoint_timeout', undefined, 'Check the network, or raise tokens.mintTimeout.'],
    ['token_endpoint_rate_limited', 429, undefined],
  ] as const)('that fails with %s %s is a failure with URL, cause and advice', async (code, status, advice) => {
    const error = new TokenError(code, 'the cause', { tokenEndpointStatus: status })
    const mint: CheckParts['mint'] = async (_, org) => ({ ...settled, org, outcome: code, error })
    const { exitCode, printed } = await run({}, 'acme', mint)
    expect(exitCode).toBe(1)
    const [first, call, cause, last] = printed.slice(printed.indexOf('mint:')).split('\n')
    expect([first, call, cause]).toEqual([`mint: no token for acme: ${code}`, `  POST ${url} (7 ms)`, '  the cause'])
    if (advice === undefined) expect(last).toBe('')
    else expect(last).toContain(advice)
  })

  test.each([
    [{}, 'a/b', 'not an org id'],
    [{}, '..', 'not an org id'],
    [{ OAP_ORGS_ALLOW: 'acme' }, 'globex', 'globex is not in orgs.allow'],
  ])('is not tried for an org that no request could name: %j %s', async (env, org, reason) => {
    const { exitCode, printed } = await run(env as Record<string, string>, org)
    expect(exitCode).toBe(1)
    expect(printed).toContain(`mint: not tried: ${reason}`)
  })
})

test('the version is that of the package', () => {
  expect(readVersion()).toMatch(/^\d+\.\d+\.\d+/)
})
