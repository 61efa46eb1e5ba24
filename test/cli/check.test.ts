import { stripVTControlCharacters } from 'node:util'
import { describe, expect, test } from 'vitest'
import { type CheckOptions, check, renderSettings } from '../../src/cli/check.ts'
import { helpText } from '../../src/cli/help.ts'
import { readVersion } from '../../src/cli/version.ts'
import { loadConfig } from '../../src/config/load.ts'
import { settings } from '../../src/config/settings.ts'
import { makeFolder } from '../config/folder.ts'
import { GOOD } from '../config/refusal.ts'

async function run(env: Record<string, string>, options: Partial<CheckOptions> = {}) {
  let printed = ''
  const exitCode = await check({
    loaded: await loadConfig({ env: { ...GOOD, ...env } }),
    org: undefined,
    mint: () => expect.fail('nobody asked for a mint'),
    stdout: { write: (text) => (printed += text) },
    isTerminal: false,
    ...options,
  })
  return { exitCode, printed }
}

describe('the settings', () => {
  test('all stand in three aligned columns, with where each came from', async () => {
    await using folder = await makeFolder()
    const file = await folder.write('proxy.yaml', 'tokens: {warm: [acme, globex]}')
    const shown = renderSettings(await loadConfig({ file, env: { ...GOOD, OAP_LISTEN_IDLE_TIMEOUT: '5s' } }), false)
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

  test('the secret is masked, and nothing else of it is told', async () => {
    const { exitCode, printed } = await run({})
    expect(exitCode).toBe(0)
    expect(printed).toMatch(/^appSecret +\[redacted\] +OAP_APP_SECRET$/m)
    expect(printed).not.toContain(GOOD.OAP_APP_SECRET)
  })

  test('colours stand only on a terminal, and change no word', async () => {
    const plain = (await run({})).printed
    const coloured = (await run({}, { isTerminal: true })).printed
    expect(stripVTControlCharacters(plain)).toBe(plain)
    expect(coloured).not.toBe(plain)
    expect(stripVTControlCharacters(coloured)).toBe(plain)
  })

  test('warnings follow, one line each', async () => {
    const { printed } = await run({ OAP_LISTN_ADDRESS: 'x' })
    expect(printed).toContain('\nwarning: OAP_LISTN_ADDRESS is no setting and is ignored: did you mean')
    expect(printed).toContain('\nwarning: appSecret (OAP_APP_SECRET): is in the environment')
  })
})

describe('the mint', () => {
  test('that works is told with its duration', async () => {
    const { exitCode, printed } = await run(
      {},
      { org: 'acme', mint: async () => ({ kind: 'minted', durationMs: 12.4 }) },
    )
    expect(exitCode).toBe(0)
    expect(printed).toMatch(/\nmint: a token for acme was obtained in 12 ms\n$/)
  })

  test('that fails is told with its code, and is a failure', async () => {
    const mint: CheckOptions['mint'] = async () => ({
      kind: 'failed',
      code: 'org_access_refused',
      message: 'the token endpoint answered 403',
      durationMs: 7,
    })
    const { exitCode, printed } = await run({}, { org: 'initech', mint })
    expect(exitCode).toBe(1)
    expect(printed).toMatch(
      /\nmint: no token for initech after 7 ms: org_access_refused, the token endpoint answered 403\n$/,
    )
  })

  test.each([
    [{}, 'a/b', 'this is no org id'],
    [{}, '..', 'this is no org id'],
    [{ OAP_ORGS_ALLOW: 'acme' }, 'globex', 'globex is not in orgs.allow'],
  ])('is not tried for an org that no request could name: %j %s', async (env, org, reason) => {
    const { exitCode, printed } = await run(env as Record<string, string>, { org })
    expect(exitCode).toBe(1)
    expect(printed).toContain(`mint: not tried, because ${reason}`)
  })
})

test('the help fits a screen, and names every command and every exit code', () => {
  const lines = helpText.trimEnd().split('\n')
  expect(lines.length).toBeLessThan(24)
  for (const line of lines) expect(line.length).toBeLessThanOrEqual(80)
  for (const word of ['serve', 'check', 'sandbox', 'healthcheck', '--config', '--mint', '--port', '78']) {
    expect(helpText).toContain(word)
  }
})

test('the version is that of the package', () => {
  expect(readVersion()).toMatch(/^\d+\.\d+\.\d+/)
})
