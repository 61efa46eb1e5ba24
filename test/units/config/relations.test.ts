import { writeFile } from 'node:fs/promises'
import { describe, expect, test } from 'vitest'
import { loadConfig } from '../../../src/config/load.ts'
import { certificateFiles } from '../../support/certificates.ts'
import { GOOD, loadWith, refusalOf, refusalWith, type Variables, withFile } from './refusal.ts'

describe('settings that contradict each other', () => {
  const refused: readonly (readonly [Variables, string])[] = [
    [{ OAP_LISTEN_ADDRESS: '0.0.0.0:8080' }, 'listen.address (OAP_LISTEN_ADDRESS): is open to other machines'],
    [{ OAP_LISTEN_ADDRESS: '[::]:8080' }, 'listen.address (OAP_LISTEN_ADDRESS): is open to other machines'],
    [{ OAP_LISTEN_ADDRESS: 'proxy.internal:8080' }, 'listen.address (OAP_LISTEN_ADDRESS): is open'],
    [{ OAP_LISTEN_HOSTS: '*,a.example' }, 'listen.hosts (OAP_LISTEN_HOSTS): has "*" and other names'],
    [{ OAP_TOKENS_WARM: 'acme,' }, 'tokens.warm (OAP_TOKENS_WARM): has "", which is not an org id'],
    [
      { OAP_TOKENS_WARM: 'b', OAP_ORGS_ALLOW: 'a' },
      'tokens.warm (OAP_TOKENS_WARM): has "b", which is not in orgs.allow',
    ],
    [{ OAP_FLEET_STORE: 'redis://host/1', OAP_FLEET_CLUSTER: 'true' }, 'has only database 0'],
    [{ OAP_FLEET_STORE: 'redis+unix:///run/a', OAP_FLEET_CLUSTER: 'true' }, 'is a unix socket'],
    [
      { OAP_FLEET_STORE: 'redis://localhost', OAP_FLEET_SERVER_NAME: 'cache.internal' },
      'fleet.serverName (OAP_FLEET_SERVER_NAME): is the name in a certificate',
    ],
    [{ OAP_FLEET_STORE: 'rediss://host', OAP_FLEET_SERVER_NAME: '10.0.0.7' }, 'is not a host name'],
  ]
  test.each(refused)('%j', async (variables, expected) => {
    expect(await refusalWith(variables)).toEqual([expect.stringContaining(expected)])
  })

  test('an invalid pattern is reported once, and does not hide problems of the ids', async () => {
    const variables = { OAP_ORGS_PATTERN: '(', OAP_ORGS_ALLOW: 'a,b/c', OAP_TOKENS_WARM: '..,x,+a' }
    expect((await refusalWith(variables)).map((line) => line.split(', ')[0])).toEqual([
      expect.stringMatching(/^orgs\.pattern \(OAP_ORGS_PATTERN\): "\(" is not a regular expression/),
      'orgs.allow (OAP_ORGS_ALLOW): has "b/c"',
      'tokens.warm (OAP_TOKENS_WARM): has ".."',
      'tokens.warm (OAP_TOKENS_WARM): has "x"',
      'tokens.warm (OAP_TOKENS_WARM): has "+a"',
    ])
  })

  const accepted: readonly Variables[] = [
    { OAP_BASE_URL: 'http://api.example.com', OAP_ORIGIN_ALLOW_INSECURE: 'true' },
    // Probes of a kubelet come from another address.
    { OAP_ADMIN_ADDRESS: '0.0.0.0:9090' },
    { OAP_TOKENS_WARM: 'a', OAP_ORGS_ALLOW: 'a,b' },
  ]
  test.each(accepted)('%j is accepted', async (variables) => {
    await expect(loadWith(variables)).resolves.toBeDefined()
  })
})

describe('a risky choice gets a warning', () => {
  const risky: readonly (readonly [Variables, string])[] = [
    [{ OAP_LISTEN_ADDRESS: '0.0.0.0:1', OAP_LISTEN_ALLOW_REMOTE: 'true' }, 'anyone there acts as the App'],
    [{ OAP_BASE_URL: 'https://api.example.com/v2/' }, 'baseUrl (OAP_BASE_URL): ends with /v2'],
    [{ OAP_FLEET_STORE: 'redis://cache.internal' }, 'fleet.store (OAP_FLEET_STORE): is not encrypted'],
  ]
  test.each(risky)('%j', async (variables, expected) => {
    expect((await loadWith(variables)).warnings.join()).toContain(expected)
    expect((await loadWith({})).warnings.join()).not.toContain(expected)
  })
})

// `test/program/app/reload.test.ts` has the others. Without these, a public CA would speak for a private name, or no client be asked.
describe('a reload that takes away a CA is refused', () => {
  const { certificate, key } = certificateFiles('self-signed')
  const pair = `certFile: ${certificate}, keyFile: ${key}`
  test.each([
    ['origin.caFile', `origin: {caFile: ${certificate}}`, 'origin: {}'],
    ['listen.tls.clientCaFile', `listen: {tls: {${pair}, clientCaFile: ${certificate}}}`, `listen: {tls: {${pair}}}`],
    [
      'minter.caFile',
      `minter: {url: "https://localhost:1", keyFile: a.key, caFile: ${certificate}}`,
      'minter: {url: "https://localhost:1", keyFile: a.key}',
    ],
    [
      'minter.tls.clientCaFile',
      `callers: [{name: a, keyFiles: [a.key], tokens: true}]\nminter: {address: "localhost:0", tls: {${pair}, clientCaFile: ${certificate}}}`,
      `callers: [{name: a, keyFiles: [a.key], tokens: true}]\nminter: {address: "localhost:0", tls: {${pair}}}`,
    ],
  ])('%s', async (setting, before, after) => {
    const isSidecar = before.includes('url')
    const env = isSidecar ? { OAP_BASE_URL: GOOD.OAP_BASE_URL } : GOOD
    await withFile(
      before,
      async (file) => {
        const running = await loadConfig({ file, env })
        await writeFile(file, after)
        expect(await refusalOf({ file, env }, running)).toEqual([
          expect.stringMatching(new RegExp(`^${setting.replaceAll('.', '\\.')} .*is taken away`)),
        ])
      },
      { 'a.key': 'a-key-0123456789' },
    )
  })
})
