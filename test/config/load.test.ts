import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { loadAdminAddress, loadConfig } from '../../src/config/load.ts'
import { describeSource } from '../../src/config/problem.ts'
import { settings } from '../../src/config/settings.ts'
import { makeFolder } from './folder.ts'
import { GOOD, refusalOf, refusalWith } from './refusal.ts'

describe('the source of a value', () => {
  test('with only the three required settings, all others have their defaults', async () => {
    const { config, sources } = await loadConfig({ env: GOOD })
    expect(config.appId).toBe('my-app')
    expect(config.appSecret.reveal()).toBe(GOOD.OAP_APP_SECRET)
    expect(config.baseUrl.href).toBe('https://api.example.com/')
    expect(config.listen).toMatchObject({
      address: { kind: 'tcp', host: 'localhost', port: 8080 },
      socketMode: 0o660,
      callerKey: undefined,
      headersTimeout: 10_000,
      idleTimeout: 60_000,
      keepAliveTimeout: 65_000,
    })
    expect(config.replay.maxBody).toBe(65_536)
    expect(config.tokens).toMatchObject({ rejectedStatuses: [401], lifetime: 300_000, mintRate: 100, warm: [] })
    expect(config.shutdown).toEqual({ delay: 0, timeout: 10_000 })
    expect(config.origin.proxies).toBeUndefined()
    const notDefault = [...sources].filter(([, source]) => source.kind !== 'default').map(([key]) => key)
    expect(notDefault).toEqual([
      'appId',
      'appSecretFile',
      'appSecret',
      'baseUrl',
      'listen.callerKeyFile',
      'listen.tls.certFile',
      'listen.tls.keyFile',
      'listen.tls.clientCaFile',
      'origin.caFile',
      'origin.certFile',
      'origin.keyFile',
      'fleet.store',
      'fleet.username',
      'fleet.passwordFile',
      'fleet.caFile',
    ])
  })

  test('the environment overrides the file, and the file the default', async () => {
    await using folder = await makeFolder()
    const file = await folder.write('proxy.yaml', 'listen:\n  address: localhost:1\n  maxInFlight: 7\n')
    const { config, sources } = await loadConfig({ file, env: { ...GOOD, OAP_LISTEN_ADDRESS: 'localhost:2' } })
    expect(config.listen).toMatchObject({ address: { port: 2 }, maxInFlight: 7, maxConnections: 4096 })
    const told = (key: Parameters<typeof sources.get>[0]) => describeSource(sources.get(key) ?? { kind: 'unset' })
    expect(told('listen.address')).toBe('OAP_LISTEN_ADDRESS')
    expect(told('listen.maxInFlight')).toBe(`${file}:3:16`)
    expect(told('listen.maxConnections')).toBe('default')
    expect(told('origin.caFile')).toBe('not set')
  })

  test('a file may be JSON', async () => {
    await using folder = await makeFolder()
    const file = await folder.write(
      'proxy.json',
      JSON.stringify({ listen: { maxInFlight: 7 }, tokens: { warm: ['acme'] } }),
    )
    const { config } = await loadConfig({ file, env: GOOD })
    expect(config.listen.maxInFlight).toBe(7)
    expect(config.tokens.warm).toEqual(['acme'])
  })

  test('OAP_CONFIG names the file; the command line overrides it; empty means no file', async () => {
    await using folder = await makeFolder()
    const one = await folder.write('one.yaml', 'appId: one')
    const two = await folder.write('two.json', '{"appId": "two"}')
    const { OAP_APP_ID: _, ...env } = GOOD
    expect((await loadConfig({ env: { ...env, OAP_CONFIG: one } })).config.appId).toBe('one')
    expect((await loadConfig({ file: two, env: { ...env, OAP_CONFIG: one } })).config.appId).toBe('two')
    expect((await loadConfig({ env: { ...GOOD, OAP_CONFIG: '' } })).config.appId).toBe('my-app')
  })

  test('a file without settings is the same as no file', async () => {
    await using folder = await makeFolder()
    for (const content of ['', '# nothing yet\n', '---\n', '{}', 'listen:\ntokens: {}\n']) {
      const file = await folder.write('proxy.yaml', content)
      expect((await loadConfig({ file, env: GOOD })).config.appId).toBe('my-app')
    }
  })

  test('every key has its own variable, by one rule', () => {
    expect(new Set(settings.map(({ variable }) => variable)).size).toBe(settings.length)
    const variables = Object.fromEntries(settings.map(({ key, variable }) => [key, variable]))
    expect(variables).toMatchObject({
      appId: 'OAP_APP_ID',
      'tokens.maxOrgs': 'OAP_TOKENS_MAX_ORGS',
      'listen.callerKeyFile': 'OAP_LISTEN_CALLER_KEY_FILE',
      'origin.proxyFromEnv': 'OAP_ORIGIN_PROXY_FROM_ENV',
    })
  })

  test('a variable can set everything that a file can', async () => {
    const { config } = await loadConfig({
      env: {
        ...GOOD,
        OAP_APP_ROUTES: 'POST /v2/links, GET /v2/apps/*',
        OAP_LISTEN_ADDRESS: 'unix:/run/proxy.sock',
        OAP_LISTEN_SOCKET_MODE: '0600',
        OAP_LISTEN_HOSTS: 'proxy.internal,[fd00::1]',
        OAP_LISTEN_REFUSE_FORWARDED: 'false',
        OAP_ORGS_ALLOW: 'acme, globex',
        OAP_ORGS_PATTERN: 'acme|globex',
        OAP_TOKENS_WARM: 'acme',
        OAP_TOKENS_REJECTED_STATUSES: '401,419',
        OAP_TOKENS_MINT_RATE: '0.5',
        OAP_TOKENS_MAX_ORGS: '2',
        OAP_REPLAY_MAX_BODY: '1MiB',
        OAP_ADMIN_ADDRESS: 'off',
        OAP_LOG_REQUESTS: 'errors',
      },
    })
    expect(config.appRoutes).toEqual([
      { method: 'POST', path: '/v2/links', isPrefix: false },
      { method: 'GET', path: '/v2/apps/', isPrefix: true },
    ])
    expect(config.listen).toMatchObject({
      address: { kind: 'unix', path: '/run/proxy.sock' },
      socketMode: 0o600,
      hosts: ['proxy.internal', '[fd00::1]'],
      refuseForwarded: false,
    })
    expect(config.orgs.allow).toEqual(['acme', 'globex'])
    expect(config.orgs.pattern.test('acme')).toBe(true)
    expect(config.orgs.pattern.test('acme-2')).toBe(false)
    expect(config.tokens).toMatchObject({ warm: ['acme'], rejectedStatuses: [401, 419], mintRate: 0.5, maxOrgs: 2 })
    expect(config.replay.maxBody).toBe(1_048_576)
    expect(config.admin.address).toBe('off')
    expect(config.log.requests).toBe('errors')
  })
})

describe('a wrong configuration', () => {
  test('reports all its problems at once, each with its place', async () => {
    await using folder = await makeFolder()
    const file = await folder.write(
      'proxy.yaml',
      'appId: my-app\nlisten:\n  adress: localhost:1\n  headersTimeout: 10\norgs:\n  allow: [a/b]\n',
    )
    const env = { OAP_BASE_URL: 'http://api.example.com', OAP_LOG_LEVEL: 'loud', OAP_TOKENS_LEARN: 'yes' }
    expect(await refusalOf({ file, env })).toEqual([
      `listen.adress (${file}:3:3): is not a setting: did you mean listen.address?`,
      `listen.headersTimeout (${file}:4:19): 10 has no unit: write 250ms, 30s, 5m or 1h`,
      'tokens.learn (OAP_TOKENS_LEARN): "yes" is not true or false',
      'log.level (OAP_LOG_LEVEL): "loud" is not one of trace, debug, info, warn, error, fatal, silent',
      'baseUrl (OAP_BASE_URL): is plain http to another machine: use https, or set origin.allowInsecure to true',
      `orgs.allow (${file}:6:10): has "a/b", which is not an org id (see orgs.pattern)`,
      'appSecretFile (not set): is required: name the file that holds the App secret, or set OAP_APP_SECRET',
    ])
  })

  test('without settings, the three required ones are reported', async () => {
    expect(await refusalOf({ env: {} })).toEqual([
      'appId (not set): is required: set it in the config file, or as OAP_APP_ID',
      'baseUrl (not set): is required: set it in the config file, or as OAP_BASE_URL',
      'appSecretFile (not set): is required: name the file that holds the App secret, or set OAP_APP_SECRET',
    ])
  })

  test.each([
    ['OAP_LISTEN_IDLE_TIMEOUT', '0s', 'is not between 1ms and 168h'],
    ['OAP_LISTEN_IDLE_TIMEOUT', '60', 'is not a duration: write 250ms, 30s, 5m or 1h'],
    ['OAP_TOKENS_MAX_ORGS', '0', 'is not a whole number from 1 to 1000000'],
    ['OAP_TOKENS_MAX_ORGS', '1.5', 'is not a whole number from 1 to 1000000'],
    ['OAP_TOKENS_MAX_ORGS', '1e3', 'is not a whole number from 1 to 1000000'],
    ['OAP_TOKENS_MINT_RATE', '0', 'is not a number from 0.1 to 100000'],
    ['OAP_REPLAY_MAX_BODY', '64', 'is not a size: write 512B, 64KiB or 1MiB'],
    ['OAP_REPLAY_MAX_BODY', '65MiB', 'is not between 0B and 64MiB'],
    ['OAP_LISTEN_SOCKET_MODE', '660', 'is not a file mode: write it in octal with a leading zero, such as 0660'],
    [
      'OAP_LISTEN_HOSTS',
      'a.example:80',
      'is not a host name: write it without scheme and port, an IPv6 address in brackets',
    ],
    ['OAP_ORGS_PATTERN', 'a)|(b', 'is not a regular expression: the default is ^[\\w-][\\w.~:@+=-]{0,127}$'],
    ['OAP_LOG_FORMAT', 'JSON', 'is not one of json, pretty'],
  ])('%s=%s', async (variable, value, message) => {
    const key = settings.find((setting) => setting.variable === variable)?.key
    const shown = /^\d+(\.\d+)?$/.test(value) && !message.includes('write') ? value : JSON.stringify(value)
    expect(await refusalWith({ [variable]: value })).toEqual([`${key} (${variable}): ${shown} ${message}`])
  })

  test('an empty variable counts as not set, and gets a warning', async () => {
    const { config, sources, warnings } = await loadConfig({
      env: { ...GOOD, OAP_ORGS_ALLOW: '', OAP_LOG_LEVEL: '', OAP_APP_SECRET_FILE: '' },
    })
    expect([config.orgs.allow, config.log.level]).toEqual([[], 'info'])
    expect(sources.get('log.level')).toEqual({ kind: 'default' })
    const line = 'these variables are empty and count as not set: OAP_APP_SECRET_FILE, OAP_ORGS_ALLOW, OAP_LOG_LEVEL'
    expect(warnings).toContain(line)
    expect(await refusalWith({ OAP_APP_ID: '' })).toEqual([
      'appId (not set): is required: set it in the config file, or as OAP_APP_ID',
    ])
  })

  test('only the wrong entry of a list is named', async () => {
    expect(await refusalWith({ OAP_TOKENS_REJECTED_STATUSES: '401,200,403' })).toEqual([
      'tokens.rejectedStatuses (OAP_TOKENS_REJECTED_STATUSES): 200 is not a whole number from 400 to 599',
    ])
  })

  test('an App id with a colon is refused', async () => {
    expect(await refusalWith({ OAP_APP_ID: 'my:hunter2' })).toEqual([
      'appId (OAP_APP_ID): contains ":": Basic credentials would be ambiguous (RFC 7617 §2)',
    ])
  })

  test('a value that may be a misplaced secret is never repeated', async () => {
    const env = {
      OAP_APP_ID: 'me:hunter2',
      OAP_APP_SECRET: 'hunter2\nhunter2',
      OAP_BASE_URL: 'https://me:hunter2@api.example.com/?hunter2#hunter2',
      HTTPS_PROXY: 'hunter2',
      OAP_ORIGIN_PROXY_FROM_ENV: 'true',
    }
    const lines = await refusalOf({ env })
    expect(lines).toHaveLength(4)
    expect(lines.join('\n')).not.toContain('hunter2')
  })
})

describe('secrets in a configuration', () => {
  test('neither the configuration nor its texts show a secret', async () => {
    const loaded = await loadConfig({
      env: { ...GOOD, OAP_ORIGIN_PROXY_FROM_ENV: 'true', HTTPS_PROXY: 'http://me:hunter2@proxy.example.com:3128' },
    })
    expect(loaded.config.origin.proxies?.httpsProxy?.reveal()).toContain('hunter2')
    const { inspect } = await import('node:util')
    const shown = [
      inspect(loaded, { depth: 9, showHidden: true }),
      JSON.stringify(loaded.config),
      ...loaded.texts.values(),
    ]
    expect(shown.join('\n')).not.toMatch(/hunter2|correct horse/)
    expect(loaded.texts.get('appSecret')).toBe('[redacted]')
  })

  test('proxies of the environment are read only with origin.proxyFromEnv', async () => {
    const env = { ...GOOD, HTTPS_PROXY: 'http://proxy.example.com:3128', no_proxy: 'localhost' }
    const ignored = await loadConfig({ env })
    expect(ignored.config.origin.proxies).toBeUndefined()
    expect(ignored.warnings).toContain('HTTPS_PROXY is set and ignored: set origin.proxyFromEnv to true to use it')
    const honoured = await loadConfig({ env: { ...env, OAP_ORIGIN_PROXY_FROM_ENV: 'true' } })
    expect(honoured.config.origin.proxies?.httpsProxy?.reveal()).toBe('http://proxy.example.com:3128')
    expect(honoured.config.origin.proxies).toMatchObject({ httpProxy: undefined, noProxy: 'localhost' })
    expect(honoured.warnings.join()).not.toContain('HTTPS_PROXY')
  })

  test('an unknown variable gets a warning only, because Kubernetes sets some', async () => {
    const { warnings } = await loadConfig({
      env: { ...GOOD, OAP_LISTN_ADDRESS: 'localhost:1', OAP_SERVICE_HOST_X: 'hunter2', OAPX: '1' },
    })
    expect(warnings).toContain('OAP_LISTN_ADDRESS is not a setting and is ignored: did you mean OAP_LISTEN_ADDRESS?')
    expect(warnings).toContain('OAP_SERVICE_HOST_X is not a setting and is ignored')
    expect(warnings.join('\n')).not.toMatch(/hunter2|OAPX/)
  })

  test('the admin address loads while other settings are wrong', async () => {
    const env = { OAP_ADMIN_ADDRESS: 'localhost:1234', OAP_APP_SECRET_FILE: join('no', 'such', 'file') }
    expect(await loadAdminAddress({ env })).toEqual({ kind: 'tcp', host: 'localhost', port: 1234 })
    await expect(loadAdminAddress({ env: { ...env, OAP_ADMIN_ADDRESS: 'here' } })).rejects.toMatchObject({
      problems: [{ key: 'admin.address' }],
    })
    await using folder = await makeFolder()
    const file = await folder.write('proxy.yaml', 'admin: [')
    expect(await loadAdminAddress({ file, env })).toMatchObject({ port: 1234 })
    expect(await loadAdminAddress({ file, env: {} }), 'the default').toMatchObject({ port: 9090 })
  })
})

test('a reload takes over the settings that need no restart, and keeps all others', async () => {
  const running = await loadConfig({ env: { ...GOOD, OAP_FLEET_STORE: 'redis://localhost' } })
  const env = { OAP_ORGS_ALLOW: 'acme', OAP_LISTEN_HOSTS: 'a.example', OAP_LISTEN_MAX_IN_FLIGHT: '7', OAP_APP_ID: 'b' }
  const { config } = await loadConfig({ env: { ...GOOD, ...env, OAP_APP_SECRET: 'another' } }, running)
  const { listen, orgs } = running.config
  const taken = { listen: { ...listen, hosts: ['a.example'] }, orgs: { ...orgs, allow: ['acme'] } }
  expect(config).toEqual({ ...running.config, ...taken })
  expect(config.appSecret.reveal()).toBe(GOOD.OAP_APP_SECRET)
})
