import { inspect } from 'node:util'
import { describe, expect, test } from 'vitest'
import { loadConfig } from '../../../src/config/load.ts'
import { settings } from '../../../src/config/settings.ts'
import { GOOD, loadFile, loadWith, refusalOf, refusalWith, withFile } from './refusal.ts'

describe('the source of a value', () => {
  test('with only the three required settings, all others have their defaults', async () => {
    const { config, given } = await loadConfig({ env: GOOD })
    expect(config).toMatchObject({
      appId: 'my-app',
      listen: { address: { kind: 'tcp', host: 'localhost', port: 8080 }, socketMode: 0o660, headersTimeoutMs: 10_000 },
      replay: { maxBodyBytes: 65_536 },
      tokens: { rejectedStatuses: [401], lifetimeMs: 'auto', mintRate: 100, warm: [] },
      fleet: { timeoutMs: 100, prefix: 'oap', cluster: false },
      shutdown: { delayMs: 0, timeoutMs: 10_000 },
    })
    expect([config.app?.appSecret.reveal(), config.baseUrl.href]).toEqual([
      GOOD.OAP_APP_SECRET,
      'https://api.example.com/',
    ])
    expect([config.proxies, config.fleet.store, config.listen.callerKeyFile]).toEqual([undefined, undefined, undefined])
    const unset = [...given].filter(([, { source }]) => source === 'not set').map(([key]) => key)
    expect(unset.filter((key) => !key.endsWith('File'))).toEqual([
      'origin.secretHeaders',
      'orgs.ids',
      'tokens.form',
      'tokens.json',
      'tokens.secretHeaders',
      'tokens.assertion.audience',
      'tokens.assertion.keyId',
      'tokens.assertion.algorithm',
      'fleet.store',
      'fleet.username',
      'fleet.serverName',
      'minter.address',
      'minter.url',
      'traces.endpoint',
    ])
  })

  test('the environment overrides the file, and the file the default', async () => {
    const yaml = 'listen:\n  address: localhost:1\n  maxInFlight: 7\n'
    await withFile(yaml, async (file) => {
      const { config, given } = await loadConfig({ file, env: { ...GOOD, OAP_LISTEN_ADDRESS: 'localhost:2' } })
      expect(config.listen).toMatchObject({ address: { port: 2 }, maxInFlight: 7, maxConnections: 4096 })
      const sources = ['listen.address', 'listen.maxInFlight', 'listen.maxConnections', 'origin.caFile'] as const
      expect(sources.map((key) => given.get(key)?.source)).toEqual([
        'OAP_LISTEN_ADDRESS',
        `${file}:3:16`,
        'default',
        'not set',
      ])
    })
  })

  test('a file may be JSON', async () => {
    const { config } = await loadFile(
      JSON.stringify({ listen: { maxInFlight: 7 }, tokens: { lifetime: '10m', warm: ['a'] } }),
    )
    expect([config.listen.maxInFlight, config.tokens.lifetimeMs, config.tokens.warm]).toEqual([7, 600_000, ['a']])
  })

  test('statuses are learned unless tokens.rejectedStatuses is set, even to its default', async () => {
    const learns = async (env: Record<string, string> = {}) =>
      (await loadConfig({ env: { ...GOOD, ...env } })).config.learnsStatuses
    expect([await learns(), await learns({ OAP_TOKENS_REJECTED_STATUSES: '401' })]).toEqual([true, false])
  })

  test('OAP_CONFIG names the file; the command line overrides it; empty means no file', async () => {
    const { OAP_APP_ID: _, ...env } = GOOD
    await withFile(
      '{"appId": "two"}',
      async (file, at) => {
        const OAP_CONFIG = at('one.yaml')
        expect((await loadConfig({ env: { ...env, OAP_CONFIG } })).config.appId).toBe('one')
        expect((await loadConfig({ file, env: { ...env, OAP_CONFIG } })).config.appId).toBe('two')
      },
      { 'one.yaml': 'appId: one' },
    )
    expect((await loadWith({ OAP_CONFIG: '' })).config.appId).toBe('my-app')
  })

  test.each(['', '# nothing yet\n', '---\n', '{}', 'listen:\ntokens: {}\n'])(
    'a file without settings: %j',
    async (yaml) => {
      expect((await loadFile(yaml)).config.appId).toBe('my-app')
    },
  )

  test('every key has its own variable, by one rule', () => {
    expect(new Set(settings.map(({ variable }) => variable)).size).toBe(settings.length)
    const variables = Object.fromEntries(settings.map(({ key, variable }) => [key, variable]))
    expect(variables).toMatchObject({
      appId: 'OAP_APP_ID',
      'tokens.maxOrgs': 'OAP_TOKENS_MAX_ORGS',
      'listen.tls.certFile': 'OAP_LISTEN_TLS_CERT_FILE',
      'origin.proxyFromEnv': 'OAP_ORIGIN_PROXY_FROM_ENV',
    })
  })

  test('a variable can set everything that a file can', async () => {
    const { config } = await loadWith({
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
      OAP_REPLAY_MAX_BODY: '1MiB',
      OAP_ADMIN_ADDRESS: 'off',
    })
    expect(config).toMatchObject({
      appRoutes: [
        { method: 'POST', path: '/v2/links', isPrefix: false },
        { method: 'GET', path: '/v2/apps/', isPrefix: true },
      ],
      listen: {
        address: { kind: 'unix', path: '/run/proxy.sock' },
        socketMode: 0o600,
        hosts: ['proxy.internal', '[fd00::1]'],
        refuseForwarded: false,
      },
      orgs: { allow: ['acme', 'globex'] },
      tokens: { warm: ['acme'], rejectedStatuses: [401, 419], mintRate: 0.5 },
      replay: { maxBodyBytes: 1_048_576 },
      admin: { address: 'off' },
    })
    expect(['acme', 'acme-2'].map((id) => config.orgs.pattern.test(id))).toEqual([true, false])
  })
})

describe('a wrong configuration', () => {
  test('reports all its problems at once, each with its place', async () => {
    const yaml = 'appId: my-app\nlisten:\n  adress: localhost:1\n  headersTimeout: 10\norgs:\n  allow: [a/b]\n'
    const env = { OAP_BASE_URL: 'http://api.example.com', OAP_LOG_LEVEL: 'loud', OAP_LISTEN_ALLOW_REMOTE: 'yes' }
    await withFile(yaml, async (file) => {
      expect(await refusalOf({ file, env })).toEqual([
        `listen.adress (${file}:3:11): is not a setting: did you mean listen.address?`,
        'listen.allowRemote (OAP_LISTEN_ALLOW_REMOTE): "yes" is not true or false',
        `listen.headersTimeout (${file}:4:19): "10" is not a duration: write 250ms, 30s, 5m or 1h`,
        'log.level (OAP_LOG_LEVEL): "loud" is not one of trace, debug, info, warn, error, fatal, silent',
        'baseUrl (OAP_BASE_URL): is plain http to another machine: use https, or set origin.allowInsecure to true',
        `orgs.allow (${file}:6:10): has "a/b", which is not an org id (see orgs.pattern)`,
        'appSecretFile (not set): is required: name the file that holds the App secret, or set OAP_APP_SECRET',
      ])
    })
  })

  test('a required setting is missing', async () => {
    expect(await refusalOf({ env: { OAP_BASE_URL: '' } })).toEqual([
      'baseUrl (not set): is required: set it in a config file (--config FILE), or as OAP_BASE_URL',
      'appId (not set): is required: set it in a config file (--config FILE), or as OAP_APP_ID',
      'appSecretFile (not set): is required: name the file that holds the App secret, or set OAP_APP_SECRET',
    ])
  })

  test.each([
    ['OAP_LISTEN_IDLE_TIMEOUT', '0s', 'is not between 1ms and 168h'],
    ['OAP_TOKENS_MAX_ORGS', '1.5', 'is not a whole number from 1 to 1000000'],
    ['OAP_TOKENS_MAX_ORGS', '1e3', 'is not a whole number from 1 to 1000000'],
    ['OAP_TOKENS_MINT_RATE', '0', 'is not a number from 0.1 to 100000'],
    ['OAP_REPLAY_MAX_BODY', '65MiB', 'is not between 0B and 64MiB'],
    ['OAP_LISTEN_SOCKET_MODE', '660', 'is not a file mode: write it in octal with a leading zero, such as 0660'],
    ['OAP_ORGS_PATTERN', 'a)|(b', 'is not a regular expression: the default is ^[\\w-][\\w.~:@+=-]{0,127}$'],
    ['OAP_FLEET_PREFIX', 'a{b}', 'is not 1 to 64 letters, digits or any of _ . : -'],
  ])('%s=%s', async (variable, value, message) => {
    const key = settings.find((setting) => setting.variable === variable)?.key
    expect(await refusalWith({ [variable]: value })).toEqual([
      `${key} (${variable}): ${JSON.stringify(value)} ${message}`,
    ])
  })

  test('only the wrong entry of a list is named', async () => {
    expect(await refusalWith({ OAP_TOKENS_REJECTED_STATUSES: '401,200,403' })).toEqual([
      'tokens.rejectedStatuses[1] (OAP_TOKENS_REJECTED_STATUSES): "200" is not a whole number from 300 to 599',
    ])
    expect(await refusalWith({ OAP_LISTEN_HOSTS: 'a.example:80' })).toEqual([
      expect.stringMatching(/^listen\.hosts\[0\] \(OAP_LISTEN_HOSTS\): "a\.example:80" is not a host name/),
    ])
  })

  test('all faults of an address are told, braces in its host too', async () => {
    const lines = await refusalWith({
      OAP_BASE_URL: 'https://{orgId}.example.com/?x',
      OAP_TOKENS_ENDPOINT: 'POST https://me@{orgId}.example.com/{orgId}/../token',
    })
    expect(lines[0]).toMatch(/^baseUrl \(OAP_BASE_URL\): has braces in its host: .+; has a query or a fragment/)
    expect(lines[1]).toMatch(/contains a user name .+; has braces in its host .+; has a path with "\." or "\.\."/)
    expect(lines).toHaveLength(2)
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
    expect(lines[0]).toContain('contains ":" or a control character')
    expect(lines.join('\n')).not.toContain('hunter2')
  })

  test.each([
    ['TOKENS_FORM', 'client_secret=hunter2'],
    ['TOKENS_FORM', 'hunter2'],
    ['TOKENS_JSON', '{"client_secret":"hunter2"}'],
    ['TOKENS_ENDPOINT', 'PATCH /token?code=hunter2'],
    ['ROUTES_ALLOW', 'Authorization: hunter2'],
    ['LOG_LEVEL', 'password=hunter2'],
    ['ORGS_ALLOW', 'client_secret=hunter2/x'],
  ])('a value that may hold a secret is not repeated either: OAP_%s=%s', async (name, text) => {
    const lines = await refusalWith({ [`OAP_${name}`]: text })
    expect(lines.join()).toContain(`(OAP_${name})`)
    expect(lines.join()).not.toContain('hunter2')
    const key = name.toLowerCase().replace('_', '.')
    const ofFile = await loadFile(`${key.replace('.', ': { ')}: ${JSON.stringify(text)} }`).catch(
      (error: Error) => error.message,
    )
    expect(ofFile).toContain(key)
    expect(ofFile).not.toContain('hunter2')
  })
})

describe('the environment', () => {
  test('an empty variable counts as not set', async () => {
    const { config, given } = await loadWith({ OAP_ORGS_ALLOW: '', OAP_LOG_LEVEL: '', OAP_APP_SECRET_FILE: '' })
    expect([config.orgs.allow, config.log.level, given.get('log.level')?.source]).toEqual([[], 'info', 'default'])
  })

  test('an unknown variable gets a warning only, because Kubernetes sets some', async () => {
    const { warnings } = await loadWith({ OAP_LISTN_ADDRESS: 'x', OAP_SERVICE_HOST_X: 'hunter2', OAPX: '1' })
    expect(warnings).toContain('OAP_LISTN_ADDRESS is not a setting: did you mean OAP_LISTEN_ADDRESS?')
    expect(warnings).toContain('OAP_SERVICE_HOST_X is not a setting: it is ignored')
    expect(warnings.join('\n')).not.toMatch(/hunter2|OAPX/)
  })

  test('a misspelt variable is named beside the setting that is missing', async () => {
    const env = { OAP_APPID: 'my-app', OAP_APP_SECRETFILE: '/x', OAP_BASE_URL: GOOD.OAP_BASE_URL }
    expect(await refusalOf({ env })).toEqual([
      expect.stringMatching(/^appId \(not set\): is required/),
      expect.stringMatching(/^appSecretFile \(not set\): is required/),
      'OAP_APPID is not a setting: did you mean OAP_APP_ID?',
      'OAP_APP_SECRETFILE is not a setting: did you mean OAP_APP_SECRET_FILE?',
    ])
  })

  test('no variable sets callers', async () => {
    expect(await refusalWith({ OAP_CALLERS: 'a' })).toEqual([
      'callers (OAP_CALLERS): is not a list, and only a config file can hold one',
    ])
  })

  test('an entry of NO_PROXY that may hold a password is not repeated', async () => {
    const env = { OAP_ORIGIN_PROXY_FROM_ENV: 'true', NO_PROXY: 'http://me:hunter2@internal.example/' }
    const { warnings } = await loadWith(env)
    expect(warnings.join()).toContain('NO_PROXY has an entry, which matches nothing')
    expect(warnings.join()).not.toContain('hunter2')
  })

  test.each([
    ['HTTPS_PROXY', 'http://me:hunter2@proxy.example', /^HTTPS_PROXY is ignored: .*origin\.proxyFromEnv/],
    ['http_proxy', 'http://me:hunter2@proxy.example', /^http_proxy is ignored: /],
    ['ALL_PROXY', 'socks5://me:hunter2@proxy.example', /^ALL_PROXY is ignored: set HTTPS_PROXY/],
    ['all_proxy', 'http://me:hunter2@proxy.example', /^all_proxy is ignored: /],
    ['NODE_DEBUG', 'http', /^NODE_DEBUG lets others read the secret/],
    ['NODE_DEBUG_NATIVE', 'tls', /^NODE_DEBUG_NATIVE lets/],
    ['SSLKEYLOGFILE', '/tmp/hunter2', /^SSLKEYLOGFILE lets/],
    ['NODE_TLS_REJECT_UNAUTHORIZED', '0', /^NODE_TLS_REJECT_UNAUTHORIZED is ignored: certificates are verified/],
    ['NODE_OPTIONS', '--inspect=0.0.0.0:9229', /^--inspect lets others read the secret and all tokens/],
    ['NODE_OPTIONS', '--no-warnings --heapsnapshot-signal=SIGUSR2', /^--heapsnapshot-signal lets others read/],
    ['NODE_OPTIONS', '--heapsnapshot-near-heap-limit=3', /^--heapsnapshot-near-heap-limit lets/],
    ['NODE_OPTIONS', '--heap-prof', /^--heap-prof lets/],
    ['NODE_OPTIONS', '--cpu-prof --report-on-signal', /^--cpu-prof lets/],
    ['NODE_OPTIONS', '--report-on-signal', /^--report-on-signal lets/],
    ['NODE_OPTIONS', '--tls-keylog=/tmp/hunter2', /^--tls-keylog lets/],
  ])('%s=%s gets a warning', async (name, value, warning) => {
    const { warnings } = await loadWith({ [name]: value })
    expect(warnings).toContainEqual(expect.stringMatching(warning))
    expect(warnings.join()).not.toContain('hunter2')
  })

  test('what is harmless gets none', async () => {
    const env = {
      NODE_OPTIONS: '--inspect-port=0 --max-old-space-size=64',
      NODE_TLS_REJECT_UNAUTHORIZED: '1',
      NO_PROXY: 'a',
    }
    expect((await loadWith(env)).warnings).toEqual((await loadWith({})).warnings)
    const used = { HTTPS_PROXY: 'http://proxy.example', OAP_ORIGIN_PROXY_FROM_ENV: 'true' }
    expect((await loadWith(used)).warnings).toEqual((await loadWith({})).warnings)
  })

  test.each([
    ['10.0.0.0/8,*,.example.com,*.example.org,a.example:8443,[::1]:80,::1,fd00::/8', []],
    ['10.*,10.0.0.0/64', ['10.*', '10.0.0.0/64']],
  ])('NO_PROXY=%s', async (value, unknown) => {
    const env = { NO_PROXY: value, HTTPS_PROXY: 'http://proxy.example', OAP_ORIGIN_PROXY_FROM_ENV: 'true' }
    const named = (await loadWith(env)).warnings.filter((warning) => warning.startsWith('NO_PROXY'))
    expect(named).toEqual(unknown.map((entry) => expect.stringContaining(JSON.stringify(entry))))
  })

  test('proxies are read only with origin.proxyFromEnv', async () => {
    const env = { HTTPS_PROXY: 'http://me:hunter2@proxy.example.com:3128', no_proxy: 'localhost', http_proxy: '' }
    expect((await loadWith(env)).config.proxies).toBeUndefined()
    const { config } = await loadWith({ ...env, OAP_ORIGIN_PROXY_FROM_ENV: 'true' })
    expect(config.proxies?.httpsProxy?.reveal()).toBe(env.HTTPS_PROXY)
    expect(config.proxies).toMatchObject({ httpProxy: undefined, noProxy: 'localhost' })
  })
})

test('neither the configuration nor what is shown of it has a secret', async () => {
  const file = 'callers: [{name: a, keyFiles: [a.key], orgs: ["*"]}]'
  const loaded = await loadFile(file, { 'a.key': 'hunter2-0123456789' })
  const withProxy = await loadWith({
    OAP_ORIGIN_PROXY_FROM_ENV: 'true',
    HTTPS_PROXY: 'http://me:hunter2@proxy.example.com:3128',
  })
  for (const each of [loaded, withProxy]) {
    const shown = [inspect(each, { depth: 9, showHidden: true }), JSON.stringify(each.config), ...each.given.values()]
    expect(JSON.stringify(shown)).not.toMatch(/hunter2|correct horse/)
    expect(each.given.get('appSecret')?.text).toBe('[redacted]')
  }
})

test('a reload takes over the settings that need no restart, and keeps all others', async () => {
  const running = await loadWith({ OAP_FLEET_STORE: 'redis://localhost' })
  const env = { OAP_ORGS_ALLOW: 'acme', OAP_LISTEN_HOSTS: 'a.example', OAP_LISTEN_MAX_IN_FLIGHT: '7', OAP_APP_ID: 'b' }
  const { config } = await loadConfig({ env: { ...GOOD, ...env, OAP_APP_SECRET: 'another' } }, running)
  const { listen, orgs } = running.config
  const taken = { listen: { ...listen, hosts: ['a.example'] }, orgs: { ...orgs, allow: ['acme'] } }
  expect(config).toEqual({ ...running.config, ...taken })
  expect(config.app?.appSecret.reveal()).toBe(GOOD.OAP_APP_SECRET)
})

test.each(['TRACES_ENDPOINT', 'LISTEN_ADDRESS', 'MINTER_ADDRESS', 'MINTER_URL', 'FLEET_STORE', 'BASE_URL'])(
  'no message repeats a URL in OAP_%s: it may have a password',
  async (name) => {
    const lines = await refusalWith({ [`OAP_${name}`]: 'https://user:hunter2@example.com/?key=hunter2' })
    expect(lines.join()).not.toContain('hunter2')
  },
)
