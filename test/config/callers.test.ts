import { generateKeyPairSync } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { loadConfig } from '../../src/config/load.ts'
import { certificate } from '../support/certificates.ts'
import { type Folder, makeFolder } from './folder.ts'
import { GOOD, refusalOf } from './refusal.ts'

const JWKS = JSON.stringify({
  keys: [{ ...generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey.export({ format: 'jwk' }), kid: 'a' }],
})

const JWT = 'issuer: https://issuer.example, audience: a, subject: s'

async function folderWith(callers: string): Promise<Folder & { readonly file: string }> {
  const folder = await makeFolder()
  await folder.write('one.key', 'the-first-key-0123456789\n')
  await folder.write('two.key', 'the-second-key-0123456789')
  await folder.write('same.key', 'the-first-key-0123456789')
  await folder.write('jwks.json', JWKS)
  return { ...folder, file: await folder.write('proxy.yaml', callers) }
}

/** The problems of a file, without its path. */
async function problemsOf(callers: string, files: Readonly<Record<string, string>> = {}): Promise<string[]> {
  await using folder = await folderWith(callers)
  for (const [name, content] of Object.entries(files)) await folder.write(name, content)
  const lines = await refusalOf({ file: folder.file, env: GOOD })
  return lines.map((line) => line.replace(`${folder.file}:`, '').replaceAll(folder.path, ''))
}

test('a caller of each kind, with its files read and its paths resolved against the config file', async () => {
  await using folder = await folderWith(`
callers:
  - {name: billing, socket: /run/oap/billing.sock, orgs: [acme, "globex-*"], routes: ["GET /v2/invoices/*"]}
  - {name: reports, keyFiles: [one.key, two.key], orgs: ["*"], maxInFlight: 64}
  - {name: batch, jwt: {${JWT}, jwks: jwks.json}}
  - {name: cloud, jwt: {${JWT}2, jwks: "https://issuer.example/keys", jwksTokenFile: token}}
`)
  const { config, texts } = await loadConfig({ file: folder.file, env: GOOD })
  const [billing, reports, batch, cloud] = config.callers
  expect(billing).toEqual({
    name: 'billing',
    credential: { kind: 'socket', path: '/run/oap/billing.sock' },
    orgs: [
      { id: 'acme', isPrefix: false },
      { id: 'globex-', isPrefix: true },
    ],
    routes: [{ method: 'GET', path: '/v2/invoices/', isPrefix: true }],
    maxInFlight: undefined,
  })
  expect(reports).toMatchObject({ maxInFlight: 64, orgs: [{ id: '', isPrefix: true }] })
  const keys = reports?.credential.kind === 'key' ? reports.credential.keys : []
  expect(keys.map((key) => key.reveal())).toEqual(['the-first-key-0123456789', 'the-second-key-0123456789'])
  expect(batch?.credential).toMatchObject({
    kind: 'jwt',
    issuer: 'https://issuer.example',
    keySet: { kind: 'file', path: folder.at('jwks.json'), keySet: { keys: [{ kid: 'a', kty: 'EC' }] } },
  })
  expect(batch?.orgs).toEqual([])
  expect(cloud?.credential).toMatchObject({
    keySet: { kind: 'url', url: 'https://issuer.example/keys', tokenFile: folder.at('token') },
  })
  expect(texts.get('callers')).toContain(
    '; {"name":"reports","keyFiles":["one.key","two.key"],"orgs":["*"],"maxInFlight":64}; ',
  )
  expect(JSON.stringify(config.callers)).not.toContain('the-first-key')
})

describe('a problem is reported with its place', () => {
  test.each([
    ['callers: billing', 'callers (1:10): is not a list: write [one, two]'],
    ['callers: [billing]', 'callers[0] (1:11): is not a mapping of names to values'],
    ['callers: [{socket: /a}]', 'callers[0].name (1:11): is required'],
    ['callers:\n  - name: a b\n    socket: /a', 'callers[0].name (2:5): is not a name'],
    ['callers: [{name: a}]', 'callers[0] (1:11): needs exactly one of socket, keyFiles, jwt and'],
    ['callers: [{name: a, socket: /a, keyFiles: [one.key]}]', 'callers[0] (1:11): needs exactly one of'],
    [
      'callers: [{name: a, socket: a.sock}]',
      'callers[0].socket (1:21): needs an absolute path: write /run/oap/billing/proxy.sock',
    ],
    ['callers: [{name: a, sockett: /a}]', 'callers[0].sockett (1:21): is not a setting: did you mean socket?'],
    ['callers: [{name: a, socket: /a, orgs: ["a*b"]}]', 'callers[0].orgs[0] (1:40): is not an org id'],
    ['callers: [{name: a, socket: /a, routes: [/v2]}]', 'callers[0].routes[0] (1:42): is not a route'],
    ['callers: [{name: a, socket: /a, maxInFlight: 0}]', 'callers[0].maxInFlight (1:33): is not a whole number'],
    ['callers: [{name: a, keyFiles: []}]', 'callers[0].keyFiles (1:21): is empty: name a file'],
    ['callers: [{name: a, keyFiles: [no.key]}]', 'callers[0].keyFiles[0] (1:32): /no.key does not exist'],
    [`callers: [{name: a, jwt: {${JWT}, jwks: "http://a.example"}}]`, 'callers[0].jwt.jwks (1:'],
    [`callers: [{name: a, jwt: {${JWT}, jwks: one.key}}]`, 'is not JSON'],
    [`callers: [{name: a, jwt: {${JWT}, jwks: jwks.json, jwksCaFile: x}}]`, 'jwksCaFile (1:'],
    [
      'callers: [{name: a, jwt: {issuer: a, subject: s, jwks: jwks.json}}]',
      'callers[0].jwt.audience (1:21): is required',
    ],
    ['callers: [{name: a, name: b, socket: /a}]', 'callers.name (1:21): is given twice: keep one'],
  ])('%s', async (yaml, expected) => {
    expect(await problemsOf(yaml)).toEqual(expect.arrayContaining([expect.stringContaining(expected)]))
  })
})

describe('every problem is reported in one run', () => {
  test.each([
    [
      'an entry of a wrong shape hides no contradiction between the others',
      '{name: a, socket: /a}, {name: a, socket: /a}, {name: b}, {nam: c}',
      ['[1].name', '[1].socket', '[2]', '[3].name', '[3].nam', '[3]'],
    ],
    [
      'nor one between its own sound parts and another entry',
      '{name: a, socket: /a, maxInFlight: 0}, {name: a, socket: /a, keyFiles: [no.key]}',
      ['[0].maxInFlight', '[1].name', '[1].socket', '[1]'],
    ],
    ['nor a key file that cannot be read', '{name: a b, keyFiles: [no.key]}', ['[0].name', '[0].keyFiles[0]']],
    ['a credential of a wrong shape counts as one', '{name: a, jwt: {}, socket: /a}', ['[0].jwt', '[0]']],
    ['and is not said to be missing', '{name: a, socket: a.sock}', ['[0].socket']],
  ])('%s', async (_, callers, parts) => {
    const problems = await problemsOf(`callers: [${callers}]`)
    const named = problems.map((line) => /^callers(\S*)/.exec(line)?.[1]?.replace(/^(\[0\]\.jwt)\..*/, '$1'))
    expect([...new Set(named)].sort()).toEqual([...parts].sort())
  })
})

describe('a credential that two callers share is refused', () => {
  test.each([
    ['the same name', '{name: a, socket: /a}, {name: a, socket: /b}', '[1].name'],
    ['the same socket', '{name: a, socket: /a}, {name: b, socket: /a}', '[1].socket'],
    ['the same key file', '{name: a, keyFiles: [one.key]}, {name: b, keyFiles: [one.key]}', '[1].keyFiles[0]'],
    ['the same key', '{name: a, keyFiles: [one.key]}, {name: b, keyFiles: [two.key, same.key]}', '[1].keyFiles[1]'],
    [
      'the same claims',
      `{name: a, jwt: {${JWT}, jwks: jwks.json}}, {name: b, jwt: {${JWT}, jwks: "https://x.example"}}`,
      '[1].jwt',
    ],
  ])('%s', async (_, callers, part) => {
    expect(await problemsOf(`callers: [${callers}]`)).toEqual(
      expect.arrayContaining([expect.stringContaining(`callers${part} (1:`)]),
    )
  })

  test('a socket of the proxy itself', async () => {
    const yaml = 'listen: {address: "unix:/a"}\ncallers: [{name: a, socket: /a}]'
    expect(await problemsOf(yaml)).toEqual([expect.stringContaining('callers[0].socket (2:')])
  })

  test('callers together with listen.callerKeyFile', async () => {
    const yaml = 'listen: {callerKeyFile: two.key}\ncallers: [{name: a, socket: /a}]'
    expect(await problemsOf(yaml)).toEqual([expect.stringContaining('listen.callerKeyFile (1:')])
  })

  test('a JWT in a key file, which is not repeated', async () => {
    const problems = await problemsOf('callers: [{name: a, keyFiles: [jwt.key]}]', {
      'jwt.key': 'eyJhbGci.eyJpc3Mi.c2ln',
    })
    expect(problems).toEqual([expect.stringContaining('holds a JWT, not a key')])
    expect(problems.join()).not.toContain('eyJ')
  })
})

test('a probable mistake gets a warning', async () => {
  await using folder = await folderWith('callers: [{name: a, keyFiles: [short.key], maxInFlight: 9999}]')
  await folder.write('short.key', 'short')
  const warnings = (await loadConfig({ file: folder.file, env: GOOD })).warnings.join('\n')
  expect(warnings).toContain('has no orgs, so it may name none')
  expect(warnings).toContain('is more than listen.maxInFlight')
  expect(warnings).toContain('fewer than 16 characters')
})

test('no variable sets callers', async () => {
  const lines = await refusalOf({ env: { ...GOOD, OAP_CALLERS: 'a' } })
  expect(lines).toEqual(['callers (OAP_CALLERS): cannot be set by a variable: use a config file'])
})

// A list that an edit has emptied would open the proxy to everybody.
test('an empty list of callers is refused', async () => {
  expect(await problemsOf('callers: []')).toEqual([
    'callers (1:10): is empty: name the callers, or remove it to admit everybody',
  ])
})

test('"acme, globex" is a list that was put in quotes, and no org id', async () => {
  expect(await problemsOf('callers: [{name: a, keyFiles: [one.key], orgs: ["acme, globex"]}]')).toEqual([
    expect.stringContaining('callers[0].orgs[0] (1:49): is not an org id'),
  ])
})

test('callers that other machines can reach without TLS get a warning: their keys go in the clear', async () => {
  const warningsWith = async (listen: string) => {
    await using folder = await folderWith(
      `listen: {${listen}, allowRemote: true}\ncallers: [{name: a, keyFiles: [one.key]}]`,
    )
    for (const name of ['cert', 'key'] as const) await folder.write(`${name}.pem`, certificate('localhost')[name])
    return (await loadConfig({ file: folder.file, env: GOOD })).warnings.join()
  }
  expect(await warningsWith('address: "0.0.0.0:1"')).toContain('sends keys and tokens in the clear')
  expect(await warningsWith('address: "localhost:1"')).not.toContain('in the clear')
  expect(await warningsWith('address: "0.0.0.0:1", tls: {certFile: cert.pem, keyFile: key.pem}')).not.toContain('clear')
})

describe('a caller by certificate', () => {
  const TLS = `listen: {tls: {certFile: cert.pem, keyFile: key.pem, clientCaFile: cert.pem}}\n`
  const [cert, key] = [String(certificate('localhost').cert), String(certificate('localhost').key)]
  const files = { 'cert.pem': cert, 'key.pem': key }

  test.each(['spiffe://example.org/ns/jobs/sa/batch', 'dns:batch.jobs.svc'])('%s', async (name) => {
    await using folder = await folderWith(`${TLS}callers: [{name: a, certificate: "${name}", orgs: ["*"]}]`)
    for (const [file, content] of Object.entries(files)) await folder.write(file, content)
    const { config } = await loadConfig({ file: folder.file, env: GOOD })
    expect(config.callers).toMatchObject([{ credential: { kind: 'certificate', name } }])
    expect(config.listen.tls.clientCaCertificates).toContain('BEGIN CERTIFICATE')
    expect(config.listen.tls.keyPair?.key.reveal()).toBe(key)
  })

  test.each([
    ['batch.jobs.svc', 'is not a name in a certificate'],
    ['dns:*.jobs.svc', 'is not a name in a certificate'],
    ['dns:Batch', 'is not a name in a certificate'],
    ['dns://batch', 'is not a name in a certificate'],
  ])('%s is refused', async (name, problem) => {
    const lines = await problemsOf(`${TLS}callers: [{name: a, certificate: "${name}"}]`, files)
    expect(lines).toEqual([expect.stringContaining(problem)])
  })

  test('needs a CA for client certificates, and a certificate of its own', async () => {
    const callers = 'callers:\n  - {name: a, certificate: "dns:x"}\n  - {name: b, certificate: "dns:x"}'
    expect(await problemsOf(callers)).toEqual([
      'callers[0].certificate (2:15): needs listen.tls.clientCaFile: without it, nobody is asked for a certificate',
      'callers[1].certificate (3:15): is the certificate of caller a: give each caller its own',
      'callers[1].certificate (3:15): needs listen.tls.clientCaFile: without it, nobody is asked for a certificate',
    ])
  })
})
