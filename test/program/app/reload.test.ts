/** A reload in the whole program: the settings that it applies, those that it does not, and that no request fails. */

import { generateKeyPairSync } from 'node:crypto'
import { readFile, rename, rm, writeFile } from 'node:fs/promises'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { CA_FILE, certificate, certificateFiles } from '../../support/certificates.ts'
import { eventually, Gate } from '../../support/changes.ts'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { looksOnDemand } from '../../support/looks.ts'
import { outcomeOf, request } from '../../support/raw-client.ts'
import { type Service, startService } from '../../support/service.ts'
import { type ProxySettings, type ProxyUnderTest, startProxy } from '../../support/start-proxy.ts'

const KEY = 'billing-key-0123456789'
const OTHER_KEY = 'reports-key-0123456789'

const caller = (orgs: string) => `callers: [{name: billing, keyFiles: [billing.key], orgs: [${orgs}]}]\n`

let service: Service
let proxy: ProxyUnderTest

beforeEach(async () => {
  service = await startService()
})

afterEach(async () => {
  await proxy[Symbol.asyncDispose]()
  await service[Symbol.asyncDispose]()
})

async function start(
  yaml: string,
  more: Readonly<Record<string, string>> = {},
  admin = 'localhost:0', // with callers, only a unix socket serves the status
  settings: ProxySettings = {},
): Promise<void> {
  proxy = await startProxy(
    service,
    { 'admin.address': admin, ...settings },
    {
      'proxy.yaml': yaml,
      'billing.key': KEY,
      'reports.key': OTHER_KEY,
      ...more,
    },
  )
}

/** Like an editor: a new file replaces the old one. */
async function write(name: string, content: string): Promise<void> {
  await writeFile(proxy.at('.new'), content, { mode: 0o600 })
  await rename(proxy.at('.new'), proxy.at(name))
}

async function reloadWith(yaml: string): Promise<void> {
  await write('proxy.yaml', yaml)
  await proxy.app.reload()
}

/** Of no certificate. */
const newKey = () =>
  String(generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ type: 'pkcs8', format: 'pem' }))

const linesOf = (message: string) => proxy.logs.filter(({ msg }) => msg === message)

async function send(
  fields: Readonly<Record<string, string>> = {},
  route = 'GET /v2/x',
  on: number | string = proxy.port,
) {
  const all = { Host: 'localhost', 'X-Org-Id': 'acme', ...fields }
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
  return outcomeOf(await request(on, `${route} HTTP/1.1\r\n${lines.join('')}\r\n`))
}

const metric = (name: string) => proxy.metric(name)
const ready = async () => (await proxy.askAdmin('/readyz?verbose')).content

describe('what a reload applies', () => {
  test('the Orgs and keys of callers, and new callers', async () => {
    await start(caller('acme'))
    expect([await send({ 'X-Proxy-Key': KEY }), await send({ 'X-Proxy-Key': OTHER_KEY })]).toEqual([
      200,
      'caller_refused',
    ])
    await reloadWith(
      `callers:\n  - {name: billing, keyFiles: [billing.key], orgs: [globex]}\n  - {name: reports, keyFiles: [reports.key], orgs: ["*"]}\n`,
    )
    expect(await send({ 'X-Proxy-Key': KEY })).toBe('org_not_allowed')
    expect(await send({ 'X-Proxy-Key': KEY, 'X-Org-Id': 'globex' })).toBe(200)
    expect(await send({ 'X-Proxy-Key': OTHER_KEY })).toBe(200)
    await write('billing.key', 'a-new-key-0123456789')
    await proxy.app.reload()
    expect(await send({ 'X-Proxy-Key': KEY, 'X-Org-Id': 'globex' })).toBe('caller_refused')
    expect(await send({ 'X-Proxy-Key': 'a-new-key-0123456789', 'X-Org-Id': 'globex' })).toBe(200)
  })

  test('sockets of callers are opened and closed', async () => {
    const bySocket = (name: string) => `callers: [{name: billing, socket: $FOLDER/${name}, orgs: [acme]}]\n`
    await start(bySocket('one.sock'))
    expect(await send({}, 'GET /v2/x', proxy.at('one.sock'))).toBe(200)
    await write('proxy.yaml', bySocket('two.sock').replace('$FOLDER', proxy.at('.')))
    await proxy.app.reload()
    expect(await send({}, 'GET /v2/x', proxy.at('two.sock'))).toBe(200)
    await expect(send({}, 'GET /v2/x', proxy.at('one.sock'))).rejects.toThrow()
    await write('proxy.yaml', bySocket('one.sock').replace('$FOLDER', proxy.at('.')))
    await proxy.app.reload()
    expect(await send({}, 'GET /v2/x', proxy.at('one.sock'))).toBe(200) // a path that was closed is opened again
  })

  test('orgs, routes, hosts and the volume of the log', async () => {
    await start('')
    const answers = async () => [
      await send({ 'X-Org-Id': 'globex' }),
      await send({}, 'GET /v2/y'),
      await send({ Host: 'proxy.internal' }),
      await send({ 'X-Org-Id': 'a.b' }),
    ]
    expect(await answers()).toEqual([200, 200, 'host_refused', 200])
    await reloadWith(
      'orgs: {allow: [acme], pattern: "[a-z]+"}\nroutes: {allow: [GET /v2/x]}\nlisten: {hosts: [proxy.internal]}\nlog: {requests: off}\n',
    )
    expect(await answers()).toEqual(['org_not_allowed', 'route_refused', 200, 'org_id_invalid'])
    expect(linesOf('request'), 'of the requests before').toHaveLength(4)
  })

  test('CA certificates, for requests and for mints', async () => {
    await service[Symbol.asyncDispose]()
    service = await startService({ tls: certificate('localhost') })
    await start('')
    const first = await send()
    await reloadWith(`origin: {caFile: ${CA_FILE}}\n`)
    expect(first).toBe('token_endpoint_unavailable')
    expect(await eventually(async () => (await send()) === 200 || undefined, 'a mint')).toBe(true) // behind a pause
    await reloadWith(`origin: {caFile: ${certificateFiles('self-signed').certificate}}\n`)
    service.origin.present(certificate('localhost')) // resets the connections
    expect(await send()).toBe('tls_certificate_error')
  })

  test('a change of the file is enough, and so is a change of a key file', async () => {
    await start(caller('acme'))
    await write('proxy.yaml', caller('globex'))
    await proxy.until(() => linesOf('configuration applied').length > 0, 'the config file')
    expect(await send({ 'X-Proxy-Key': KEY })).toBe('org_not_allowed')
    await write('billing.key', 'a-new-key-0123456789')
    await proxy.until(() => linesOf('configuration applied').length === 2, 'the key')
    expect(await send({ 'X-Proxy-Key': 'a-new-key-0123456789', 'X-Org-Id': 'globex' })).toBe(200)
    const taken = linesOf('configuration applied')
    expect(taken.map(({ changed }) => changed)).toEqual([['callers'], ['callers']])
  })
})

test('listen.callerKeyFile and appRoutes are applied', async () => {
  await start('')
  const schemes = async (fields: Readonly<Record<string, string>>) => {
    await send(fields, 'POST /v2/links')
    return service.requests
      .at(-1)
      ?.values('authorization')
      .map((value) => value.split(' ')[0])
  }
  expect(await schemes({})).toEqual(['Bearer'])
  await reloadWith('listen: {callerKeyFile: billing.key}\nappRoutes: [POST /v2/links]\n')
  expect([await send(), await send({ 'X-Proxy-Key': KEY })]).toEqual(['caller_refused', 200])
  expect(await schemes({ 'X-Proxy-Key': KEY })).toEqual(['Basic'])
})

test('listen.hosts and orgs.pattern are applied to the admin listener, too', async () => {
  await start('')
  const ask = async (line: string, host: string) =>
    (await request(proxy.adminPort, `${line} HTTP/1.1\r\nHost: ${host}\r\n\r\n`)).status
  const answers = async () => [
    await ask('GET /livez', 'proxy.internal'),
    await ask('POST /tokens/purge?org=a.b', 'localhost'),
  ]
  const before = await answers()
  await reloadWith('listen: {hosts: [proxy.internal]}\norgs: {pattern: "[a-z]+"}\n')
  expect([before, await answers()]).toEqual([
    [421, 200],
    [200, 400],
  ])
})

describe('all or nothing', () => {
  test('a wrong configuration changes nothing, and the log lists every problem', async () => {
    await start(caller('acme'))
    await reloadWith('callers:\n  - {name: billing, keyFiles: [missing.key], orgs: [globex]}\norgs: {allow: [a/b]}\n')
    const problems = proxy.logs.flatMap(({ problem }) => (typeof problem === 'string' ? [problem] : []))
    expect(problems).toEqual([
      expect.stringMatching(/callers\[0\]\.keyFiles\[0\].*does not exist/),
      expect.stringContaining('orgs.allow'),
    ])
    expect(await send({ 'X-Proxy-Key': KEY })).toBe(200)
    expect(await metric('oap_config_reloads_total{outcome="refused"}')).toBe(1)
    expect(await ready()).toContain('the last reload was refused')
    await reloadWith('') // as while somebody writes it
    expect(await send()).toBe('caller_refused')
  })

  test.each(['proxy.yaml', 'billing.key'])('%s that is restored is no problem any more', async (name) => {
    await start(caller('acme'))
    const content = await readFile(proxy.at(name), 'utf8')
    await rm(proxy.at(name))
    await proxy.until(() => linesOf('configuration refused: the old one stays in use').length > 0, 'the refusal')
    expect(await ready()).toContain('the last reload was refused')
    expect(await send({ 'X-Proxy-Key': KEY })).toBe(200)
    await write(name, content)
    await proxy.until(() => linesOf('configuration unchanged').length > 0, 'the end of the problem')
    expect(await ready()).not.toContain('the last reload was refused')
  })

  test('a socket that cannot be opened leaves the former configuration in use, and no socket behind', async () => {
    await start(caller('acme'))
    await writeFile(proxy.at('taken.sock'), 'not a socket')
    const folder = proxy.at('.')
    await reloadWith(
      `callers:\n  - {name: a, socket: ${folder}/free.sock, orgs: [acme]}\n  - {name: b, socket: ${folder}/taken.sock, orgs: [acme]}\n`,
    )
    expect(await metric('oap_config_reloads_total{outcome="refused"}')).toBe(1)
    expect(await send({ 'X-Proxy-Key': KEY })).toBe(200)
    await expect(send({}, 'GET /v2/x', proxy.at('free.sock'))).rejects.toThrow()
    const [told] = linesOf('configuration refused: the old one stays in use')
    expect(told?.['problem']).toMatch(/^cannot be applied: Error: .*taken\.sock exists and is not a socket/)
  })

  test('a file that only the refused configuration names is watched: once it is right, the configuration is applied', async () => {
    await start(caller('acme'))
    await write('proxy.yaml', 'callers: [{name: billing, keyFiles: [next.key], orgs: [globex]}]\n')
    // Noticed by the watch of that file, so that it has nothing more to notice.
    await proxy.until(() => linesOf('configuration refused: the old one stays in use').length > 0, 'the refusal')
    await write('next.key', 'the-next-key-0123456789')
    await proxy.until(() => linesOf('configuration applied').length > 0, 'the corrected key')
    expect(await send({ 'X-Proxy-Key': 'the-next-key-0123456789', 'X-Org-Id': 'globex' })).toBe(200)
  })

  test('the same for the App secret, although each of its changes is taken over by itself', async () => {
    const look = looksOnDemand()
    await start(caller('acme'))
    await write('secret', '')
    await reloadWith(caller('globex'))
    for (let i = 0; i < 3; i++) await look() // by then the watch has found both changes
    await write('secret', service.tokens.appSecret)
    for (let i = 0; i < 3; i++) await look()
    expect(linesOf('configuration refused: the old one stays in use')).toHaveLength(1)
    expect(linesOf('configuration applied')).toHaveLength(1)
    expect(await send({ 'X-Proxy-Key': KEY, 'X-Org-Id': 'globex' })).toBe(200)
  })

  test.each([
    ['no certificate', 'ca.pem', 'x', 'contains no "-----BEGIN CERTIFICATE-----"'],
    ['a key with a blank', 'billing.key', 'a b', 'contains blanks'],
    ['a key without end', 'billing.key', 'k'.repeat(70_000), 'is larger than 64 KiB'],
    ['no key at all', 'billing.key', '', 'is empty'],
  ])('a file that changes to %s is told without being asked for', async (_, name, content, problem) => {
    const look = looksOnDemand()
    const good = await readFile(CA_FILE, 'latin1')
    await start(`${caller('acme')}origin: {caFile: ca.pem}\n`, { 'ca.pem': good })
    await look()
    await write(name, content)
    await look()
    await look()
    await proxy.until(() => linesOf('configuration refused: the old one stays in use').length > 0, 'the refusal')
    const [told] = linesOf('configuration refused: the old one stays in use')
    expect(told?.['problem']).toContain(problem)
    expect(await metric('oap_config_reloads_total{outcome="refused"}')).toBe(1)
  })
})

test('the warning of a refused configuration has a problem: check may find the file good, as here', async () => {
  await start('orgs: {allow: [globex]}\nroutes: {allow: ["GET /v2/*"]}\n')
  await reloadWith('log: {level: info}\n')
  const { warnings } = JSON.parse((await proxy.askAdmin('/status')).content)
  expect(warnings).toMatchObject([
    {
      code: 'configuration_refused',
      text: expect.stringMatching(
        /before it is in use: orgs\.allow \(.*\): is taken away, .*; and 1 more, which the log has\.$/,
      ),
    },
  ])
})

test('changed settings that need a restart are named at each reload and while they wait, and the others are applied', async () => {
  looksOnDemand() // none, so that each change is found by its reload
  await start('log: {level: info}\n')
  const warning = async () => {
    const { warnings } = JSON.parse((await proxy.askAdmin('/status')).content)
    return warnings.find(({ code }: { code: string }) => code === 'restart_pending')?.text
  }
  const WAITING = 'listen: {maxInFlight: 7}\ntokens: {rejectedCooldown: 9s}\n'
  for (const org of ['globex', 'initech']) {
    await reloadWith(`${WAITING}orgs: {allow: [${org}]}\n`)
    expect(await send({ 'X-Org-Id': org })).toBe(200)
    expect(await warning()).toContain('need a restart: listen.maxInFlight, tokens.rejectedCooldown.')
  }
  const named = linesOf('changed settings need a restart')
  expect(named.map(({ settings }) => settings)).toEqual(
    Array(2).fill(['listen.maxInFlight', 'tokens.rejectedCooldown']),
  )
  const taken = linesOf('configuration applied')
  expect(taken.map(({ changed }) => changed)).toEqual([['orgs.allow'], ['orgs.allow']])
  await reloadWith('{broken')
  expect(await warning()).toContain('listen.maxInFlight')
  await reloadWith('orgs: {allow: [initech]}\n')
  expect(await warning()).toBeUndefined()
  expect(linesOf('configuration unchanged')).toHaveLength(1)
})

describe('files that the settings name are taken over with the settings in use', () => {
  const NEXT_KEY = 'a-new-key-0123456789'
  const { key, cert } = certificate('localhost')
  const FILES = { 'key.pem': String(key), 'cert.pem': String(cert) }
  const TLS = 'origin: {certFile: cert.pem, keyFile: key.pem}\n'
  /** Each once: a look may come before the signal. */
  const refused = () => [
    ...new Set(linesOf('configuration refused: the old one stays in use').map(({ problem }) => String(problem))),
  ]
  const keys = async () => [await send({ 'X-Proxy-Key': KEY }), await send({ 'X-Proxy-Key': NEXT_KEY })]
  const OLD_KEY = [200, 'caller_refused']
  const NEW_KEY = ['caller_refused', 200]

  test.each(['{broken', `${caller('acme')}log: {level: loud}\n`, 'log: {level: warn}\n', undefined])(
    'while the settings file is not good: %j',
    async (yaml) => {
      await start(`${caller('acme')}log: {level: trace}\n`)
      expect(await keys()).toEqual(OLD_KEY)
      await write('billing.key', NEXT_KEY)
      if (yaml === undefined) await rm(proxy.at('proxy.yaml'))
      else await write('proxy.yaml', yaml)
      const isDone = () => linesOf('configuration applied').length > 0 && refused().length > 0
      await proxy.until(isDone, 'the new key, and the refusal')
      expect(await keys()).toEqual(NEW_KEY)
      expect([refused().length, linesOf('configuration applied').map(({ changed }) => changed)]).toEqual([
        1,
        [['callers']],
      ])
      await write('billing.key', KEY)
      await proxy.app.reload()
      expect(await keys(), 'again, at a signal').toEqual(OLD_KEY)
    },
  )

  test('while another file is not good', async () => {
    const both = `callers:\n  - {name: a, keyFiles: [reports.key], orgs: [acme]}\n  - {name: b, keyFiles: [billing.key], orgs: [acme]}\n`
    await start(both)
    await rm(proxy.at('reports.key'))
    await write('billing.key', NEXT_KEY)
    await proxy.app.reload()
    expect(refused()).toEqual([expect.stringMatching(/^callers\[0\]\.keyFiles\[0\] .*does not exist/)])
    expect(await keys()).toEqual(NEW_KEY)
    expect(await send({ 'X-Proxy-Key': OTHER_KEY })).toBe(200)
    await write('reports.key', KEY)
    await proxy.app.reload()
    expect(await keys()).toEqual([200, 200])
    expect(await send({ 'X-Proxy-Key': OTHER_KEY })).toBe('caller_refused')
  })

  test.each([
    ['a key that does not fit', 'key.pem', newKey(), /^origin\.keyFile .*is no private key/],
    ['half a certificate', 'cert.pem', String(cert).slice(0, 500), /^origin\.certFile .*does not end/],
    [
      'a certificate that has ended',
      'cert.pem',
      String(certificate('expired').cert),
      /^origin\.certFile .*has ended at 2\d{3}-/,
    ],
  ])('while a pair is not good, which stays as it was: %s', async (_, name, content, problem) => {
    await start(`${caller('acme')}${TLS}`, FILES)
    await write(name, content)
    await write('billing.key', NEXT_KEY)
    await proxy.app.reload()
    expect(refused()).toEqual([expect.stringMatching(problem)])
    expect(await keys()).toEqual(NEW_KEY)
    await write(name, FILES[name as keyof typeof FILES])
    await proxy.app.reload()
    expect(await ready()).not.toContain('the last reload was refused')
  })

  test('a certificate that has ended since the start does not stop a change of the settings', async () => {
    await start(`${caller('acme')}${TLS}`, { ...FILES, 'cert.pem': String(certificate('expired').cert) })
    await reloadWith(`${caller('globex')}${TLS}`)
    expect(await send({ 'X-Proxy-Key': KEY })).toBe('org_not_allowed')
  })
})

test('of many reloads that are asked for at once, one runs and one waits; each says that nothing has changed', async () => {
  await start(caller('acme'))
  const appliedAt = async () => /applied at (\S+)/.exec(await ready())?.[1]
  const since = await appliedAt()
  const first = proxy.app.reload()
  await new Promise((resolve) => setImmediate(resolve))
  await Promise.all([first, ...Array.from({ length: 50 }, () => proxy.app.reload())])
  expect(linesOf('configuration unchanged')).toHaveLength(2)
  expect([await metric('oap_config_reloads_total{outcome="unchanged"}'), await appliedAt()]).toEqual([2, since])
  await write('proxy.yaml', caller('globex'))
  await proxy.app.reload()
  expect(await send({ 'X-Proxy-Key': KEY })).toBe('org_not_allowed')
})

describe('a change is applied when two looks in a row have found it', () => {
  const LIST = 'orgs:\n  allow:\n    - acme\n'

  test('not the first lines of it', async () => {
    const look = looksOnDemand()
    await start(LIST)
    await look()
    await writeFile(proxy.at('proxy.yaml'), `${LIST}    - glob`)
    await look()
    await writeFile(proxy.at('proxy.yaml'), `${LIST}    - globex\n`)
    await look()
    await look()
    await proxy.until(() => linesOf('configuration applied').length > 0, 'the whole file')
    expect(await send({ 'X-Org-Id': 'globex' })).toBe(200)
    expect(linesOf('configuration applied')).toHaveLength(1)
  })

  test('and the others that it names do not change any more', async () => {
    const look = looksOnDemand()
    await start(caller('acme'))
    await look()
    await write('proxy.yaml', caller('globex'))
    await look()
    await writeFile(proxy.at('billing.key'), '')
    await look()
    await writeFile(proxy.at('billing.key'), 'a-new-key-0123456789')
    await look()
    await look()
    await proxy.until(() => linesOf('configuration applied').length > 0, 'both files')
    expect(await send({ 'X-Proxy-Key': 'a-new-key-0123456789', 'X-Org-Id': 'globex' })).toBe(200)
    expect(linesOf('configuration refused: the old one stays in use')).toEqual([])
  })

  test('and what SIGHUP has applied is not told again', async () => {
    const look = looksOnDemand()
    await start(caller('acme'))
    await look()
    await reloadWith(`${caller('acme')}listen: {maxInFlight: 7}\n`)
    await look()
    await look()
    await write('billing.key', 'a-new-key-0123456789')
    await look()
    await look()
    await proxy.until(() => linesOf('configuration applied').length > 0, 'the new key')
    expect(linesOf('changed settings need a restart')).toHaveLength(2) // by SIGHUP, and with the key
  })
})

test('a changed file of a setting that needs a restart is named, each time, and not logged as applied', async () => {
  const certificates = await readFile(CA_FILE, 'utf8')
  await start('fleet: {caFile: ca.pem}\n', { 'ca.pem': certificates })
  await write('ca.pem', `${certificates}\n${certificates}`)
  await proxy.app.reload()
  await proxy.app.reload()
  const named = linesOf('changed settings need a restart')
  expect(named.map(({ settings }) => settings)).toEqual([['fleet.caFile'], ['fleet.caFile']])
  expect(linesOf('configuration applied')).toEqual([])
})

test('the status shows when the configuration was taken over, its callers, and no secret', async () => {
  await start(caller('acme'), {}, 'unix:$FOLDER/admin.sock')
  const before = Date.now()
  await reloadWith(caller('globex'))
  const { content } = await proxy.askAdmin('/status')
  const { configuration, callers } = JSON.parse(content)
  expect(Date.parse(configuration.takenOverAt)).toBeGreaterThanOrEqual(before)
  expect(callers).toEqual([{ name: 'billing', requests: 0, requestsInFlight: 0 }])
  expect(content).not.toContain(KEY)
  expect(content).not.toContain(service.tokens.appSecret)
})

test('a request in flight keeps the rules that it began with', async () => {
  const gate = new Gate()
  service.script = () => gate.pass().then(() => ({}))
  await start(caller('acme'))
  const inFlight = send({ 'X-Proxy-Key': KEY })
  await service.origin.waitFor(() => service.requests.length === 1, 'the request at the service')
  await reloadWith(caller('globex'))
  gate.open()
  expect(await inFlight).toBe(200)
  expect(await send({ 'X-Proxy-Key': KEY })).toBe('org_not_allowed')
})

test('under load, no reload makes a request fail', async () => {
  await start(caller('acme'))
  const statuses: number[] = []
  let isOver = false
  const load = Promise.all(
    Array.from({ length: 4 }, async () => {
      using client = new KeepAliveClient(proxy.port)
      while (!isOver) statuses.push((await client.get('/v2/x', 'acme', `X-Proxy-Key: ${KEY}`)).status)
    }),
  )
  for (let round = 0; round < 9; round++) {
    const extra = ['log: {level: debug}\n', 'listen: {hosts: [a.example]}\n', '{broken'][round % 3]
    const more = `, {name: extra${round}, socket: ${proxy.at(`${round}.sock`)}, orgs: [acme]}`
    await reloadWith(`${caller('acme').replace(']}]', `]}${more}]`)}${extra}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  isOver = true
  await load
  expect(new Set(statuses)).toEqual(new Set([200]))
  expect(await metric('oap_config_reloads_total{outcome="applied"}')).toBe(6)
  expect(statuses.length).toBeGreaterThan(50)
})

// What goes live is the new reloadable settings with the old ones of the rest, so that mixture is what has to be safe.
describe('a reload opens nothing', () => {
  const REMOTE = 'listen: {address: "0.0.0.0:0", allowRemote: true}\n'
  const REST = 'log: {requests: errors}\n'
  const WITH_ROUTES = caller('acme').replace('}]', ', routes: [GET /v2/x]}]')
  const AWAY = 'is taken away, which may be a file that was cut short'

  // A config file of which only the first lines have been written is mostly valid YAML.
  test.each([
    ['callers', `${REST}${caller('acme')}`, REST, 'callers', {}, 'GET /v2/x'],
    ['a caller key', `${REST}listen: {callerKeyFile: billing.key}\n`, REST, 'listen.callerKeyFile', {}, 'GET /v2/x'],
    ['the allowed Orgs', `${REST}orgs: {allow: [acme]}\n`, REST, 'orgs.allow', { 'X-Org-Id': 'globex' }, 'GET /v2/x'],
    [
      'the pattern of Orgs',
      `${REST}orgs: {pattern: acme}\n`,
      REST,
      'orgs.pattern',
      { 'X-Org-Id': 'globex' },
      'GET /v2/x',
    ],
    ['the allowed routes', `${REST}routes: {allow: [GET /v2/x]}\n`, REST, 'routes.allow', {}, 'GET /v2/y'],
    [
      'the routes of the App, which would get the token of an Org',
      `${caller('acme')}appRoutes: [POST /v2/links]\n`,
      caller('acme'),
      'appRoutes',
      { 'X-Proxy-Key': KEY },
      'POST /v2/links',
    ],
    ['the routes of a caller', WITH_ROUTES, caller('acme'), 'callers[0].routes', { 'X-Proxy-Key': KEY }, 'GET /v2/y'],
    [
      'the routes of a caller whose name was cut',
      WITH_ROUTES,
      caller('acme').replace('billing', 'bill'),
      'callers[0].routes',
      { 'X-Proxy-Key': KEY },
      'GET /v2/y',
    ],
    [
      'callers of a remote listener',
      `${REMOTE}${caller('acme')}`,
      'listen: {address: "localhost:0"}\n',
      'callers',
      {},
      'GET /v2/x',
    ],
    [
      'the key of a remote listener',
      REMOTE.replace('}', ', callerKeyFile: billing.key}'),
      REMOTE,
      'listen.callerKeyFile',
      {},
      'GET /v2/x',
    ],
  ])('%s', async (_, before, after, key, fields, route) => {
    const address = before.includes('address') ? { 'listen.address': '' } : {}
    await start(before, {}, undefined, address)
    expect(await send(fields, route)).not.toBe(200)
    await reloadWith(after)
    expect(await send(fields, route)).not.toBe(200)
    expect(await metric('oap_config_reloads_total{outcome="refused"}')).toBe(1)
    expect(proxy.logs.flatMap(({ problem }) => (typeof problem === 'string' ? [problem] : []))).toEqual([
      expect.stringMatching(new RegExp(`^${key.replace(/[.[\]]/g, '\\$&')} \\(.*${AWAY}`)),
    ])
  })

  test('all that is missing is named', async () => {
    await start(`${WITH_ROUTES}orgs: {allow: [acme]}\nroutes: {allow: [GET /v2/x]}\n`)
    await reloadWith('log: {requests: errors}\n')
    const named = proxy.logs.flatMap(({ problem }) => (typeof problem === 'string' ? [problem.split(' ')[0]] : []))
    expect(named.toSorted()).toEqual(['callers', 'orgs.allow', 'routes.allow'])
  })

  test('a shorter list is applied', async () => {
    await start(`${caller('acme').replace('}]', ', routes: [GET /v2/x, GET /v2/y]}]')}orgs: {allow: [acme, globex]}\n`)
    await reloadWith(`${WITH_ROUTES}orgs: {allow: [acme]}\n`)
    expect(await send({ 'X-Proxy-Key': KEY }, 'GET /v2/y')).toBe('route_refused')
  })

  test('a socket of a caller that is the running listener', async () => {
    await start(
      `listen: {address: "unix:$FOLDER/own.sock"}\ncallers: [{name: a, keyFiles: [billing.key], orgs: [acme]}]\n`,
      {},
      undefined,
      { 'listen.address': '' },
    )
    await reloadWith(
      `listen: {address: "localhost:0"}\ncallers: [{name: a, socket: ${proxy.at('own.sock')}, orgs: [acme]}]\n`,
    )
    expect(linesOf('configuration refused: the old one stays in use')).toHaveLength(1)
  })
})

test('the files of an applied configuration are watched', async () => {
  const look = looksOnDemand()
  await start(caller('acme'))
  await look()
  await reloadWith(caller('acme').replace('billing.key', 'reports.key'))
  await look()
  await write('reports.key', 'a-new-key-0123456789')
  await look()
  await look()
  await proxy.until(() => linesOf('configuration applied').length > 1, 'the new key')
  expect(await send({ 'X-Proxy-Key': 'a-new-key-0123456789' })).toBe(200)
})
