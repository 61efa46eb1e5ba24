import { describe, expect, test } from 'vitest'
import { loadConfig } from '../../src/config/load.ts'
import { GOOD, refusalWith } from './refusal.ts'

async function warningsWith(variables: Record<string, string>): Promise<string> {
  return (await loadConfig({ env: { ...GOOD, ...variables } })).warnings.join('\n')
}

describe('settings that contradict each other', () => {
  test.each([
    [{ OAP_BASE_URL: 'http://api.example.com' }, 'baseUrl (OAP_BASE_URL): is plain http to another machine'],
    [{ OAP_LISTEN_ADDRESS: '0.0.0.0:8080' }, 'listen.address (OAP_LISTEN_ADDRESS): is open to other machines'],
    [{ OAP_LISTEN_ADDRESS: '[::]:8080' }, 'listen.address (OAP_LISTEN_ADDRESS): is open to other machines'],
    [{ OAP_LISTEN_ADDRESS: 'proxy.internal:8080' }, 'listen.address (OAP_LISTEN_ADDRESS): is open'],
    [{ OAP_ADMIN_ADDRESS: 'localhost:8080' }, 'admin.address (OAP_ADMIN_ADDRESS): is the same as listen.address'],
    [{ OAP_LISTEN_ADDRESS: 'localhost:9090' }, 'admin.address (default): is the same as listen.address'],
    [{ OAP_LISTEN_HOSTS: '*,a.example' }, 'listen.hosts (OAP_LISTEN_HOSTS): has "*" and other names'],
    [
      { OAP_ORGS_ALLOW: 'acme,a/b' },
      'orgs.allow (OAP_ORGS_ALLOW): has "a/b", which is not an org id (see orgs.pattern)',
    ],
    [{ OAP_TOKENS_WARM: '..' }, 'tokens.warm (OAP_TOKENS_WARM): has "..", which is not an org id (see orgs.pattern)'],
    [{ OAP_TOKENS_WARM: 'acme,' }, 'tokens.warm (OAP_TOKENS_WARM): has "", which is not an org id (see orgs.pattern)'],
    [
      { OAP_TOKENS_WARM: 'b', OAP_ORGS_ALLOW: 'a' },
      'tokens.warm (OAP_TOKENS_WARM): has "b", which is not in orgs.allow',
    ],
    [{ OAP_TOKENS_WARM: 'a,b', OAP_TOKENS_MAX_ORGS: '1' }, 'tokens.warm (OAP_TOKENS_WARM): has 2 orgs, more than'],
  ])('%j', async (variables, expected) => {
    const lines = await refusalWith(variables as Record<string, string>)
    expect(lines).toEqual([expect.stringContaining(expected)])
  })

  test('an invalid pattern does not hide problems of the ids', async () => {
    const variables = {
      OAP_ORGS_PATTERN: '(',
      OAP_ORGS_ALLOW: 'a,b/c',
      OAP_TOKENS_WARM: '..,x',
      OAP_TOKENS_MAX_ORGS: '1',
    }
    expect((await refusalWith(variables)).map((line) => line.split(', ')[0])).toEqual([
      'orgs.pattern (OAP_ORGS_PATTERN): "(" is not a regular expression: the default is ^[\\w-][\\w.~:@+=-]{0,127}$',
      'orgs.allow (OAP_ORGS_ALLOW): has "b/c"',
      'tokens.warm (OAP_TOKENS_WARM): has ".."',
      'tokens.warm (OAP_TOKENS_WARM): has "x"',
      'tokens.warm (OAP_TOKENS_WARM): has 2 orgs',
    ])
  })

  test.each([
    { OAP_BASE_URL: 'http://localhost:9080' },
    { OAP_BASE_URL: 'http://api.example.com', OAP_ORIGIN_ALLOW_INSECURE: 'true' },
    { OAP_LISTEN_ADDRESS: '0.0.0.0:8080', OAP_LISTEN_ALLOW_REMOTE: 'true' },
    { OAP_LISTEN_ADDRESS: '127.0.0.2:8080' },
    { OAP_LISTEN_ADDRESS: '[::1]:8080' },
    { OAP_LISTEN_ADDRESS: 'localhost:0', OAP_ADMIN_ADDRESS: 'localhost:0' },
    // Probes of a kubelet come from another address.
    { OAP_ADMIN_ADDRESS: '0.0.0.0:9090' },
    { OAP_TOKENS_WARM: 'a', OAP_ORGS_ALLOW: 'a,b' },
  ])('%j is accepted', async (variables) => {
    await expect(loadConfig({ env: { ...GOOD, ...(variables as Record<string, string>) } })).resolves.toBeDefined()
  })

  test('an invalid value is reported once', async () => {
    const variables = { OAP_TOKENS_LIFETIME: '2', OAP_ORGS_PATTERN: '(', OAP_TOKENS_WARM: '+acme' }
    expect(await refusalWith(variables)).toHaveLength(2)
  })
})

describe('a risky choice gets a warning', () => {
  test.each([
    [{ OAP_BASE_URL: 'https://api.example.com/v2' }, 'ends in /v2'],
    [{ OAP_BASE_URL: 'https://api.example.com/v2/orgs/acme/access' }, 'contains /orgs'],
    [{ OAP_BASE_URL: 'https://api.example.com/orgs' }, 'contains /orgs'],
    [{ OAP_BASE_URL: 'http://a.example', OAP_ORIGIN_ALLOW_INSECURE: 'true' }, 'can read the App secret'],
    [{ OAP_LISTEN_ADDRESS: '0.0.0.0:1', OAP_LISTEN_ALLOW_REMOTE: 'true' }, 'anyone there acts as the App'],
    [{ OAP_LISTEN_HOSTS: '*' }, 'accepts every Host'],
    [{ OAP_APP_ROUTES: '* /v2/*' }, 'covers every path'],
  ])('%j', async (variables, expected) => {
    expect(await warningsWith(variables as Record<string, string>)).toContain(expected)
    expect(await warningsWith({})).not.toContain(expected)
  })
})
