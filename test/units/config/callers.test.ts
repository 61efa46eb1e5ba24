import { generateKeyPairSync } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { certificate } from '../../support/certificates.ts'
import { loadFile, problemsOf as problemsWith } from './refusal.ts'

const { cert, key } = certificate('localhost')
const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })

const FILES = {
  'one.key': 'the-first-key-0123456789\n',
  'two.key': 'the-second-key-0123456789',
  'same.key': 'the-first-key-0123456789',
  'jwt.key': 'eyJhbGci.eyJpc3Mi.c2ln',
  'jwks.json': JSON.stringify({ keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'a' }] }),
  'cert.pem': String(cert),
  'root.pem': String(certificate('self-signed').cert),
  'key.pem': String(key),
}

const JWT = 'issuer: https://issuer.example, audience: a, subject: s'
const TLS = 'listen: {tls: {certFile: cert.pem, keyFile: key.pem, clientCaFile: root.pem}}\n'

const problemsOf = (yaml: string) => problemsWith(yaml, FILES)

test('a caller of each kind, with its files read and its paths resolved against the config file', async () => {
  const { config, given } = await loadFile(
    `${TLS}callers:
  - {name: billing, socket: /run/oap/billing.sock, orgs: [acme, "globex-*"], routes: ["GET /v2/invoices/*"]}
  - {name: reports, keyFiles: [one.key, two.key], orgs: ["*"], maxInFlight: 64}
  - {name: batch, jwt: {${JWT}, jwks: jwks.json}}
  - {name: cloud, jwt: {${JWT}2, jwks: "https://issuer.example/keys", jwksTokenFile: token}}
  - {name: mesh, certificate: "spiffe://example.org/ns/jobs/sa/batch"}
  - {name: pod, certificate: "dns:batch.jobs.svc"}
`,
    FILES,
  )
  const [billing, reports, batch, cloud, mesh, pod] = config.callers
  expect(billing).toEqual({
    name: 'billing',
    socket: '/run/oap/billing.sock',
    orgs: [
      { id: 'acme', isPrefix: false },
      { id: 'globex-', isPrefix: true },
    ],
    routes: [{ method: 'GET', path: '/v2/invoices/', isPrefix: true }],
    tokens: false,
  })
  expect(reports).toMatchObject({ maxInFlight: 64, orgs: [{ id: '', isPrefix: true }] })
  const keys = reports?.keyFiles?.map(({ content }) => content.reveal())
  expect(keys).toEqual(['the-first-key-0123456789', 'the-second-key-0123456789'])
  expect(batch?.jwt).toMatchObject({ issuer: 'https://issuer.example', jwks: { content: { keys: [{ kid: 'a' }] } } })
  expect(batch?.orgs).toEqual([])
  expect(cloud?.jwt).toMatchObject({
    jwks: 'https://issuer.example/keys',
    jwksTokenFile: expect.stringMatching(/^\/.*token$/),
  })
  expect([mesh?.certificate, pod?.certificate]).toEqual(['spiffe://example.org/ns/jobs/sa/batch', 'dns:batch.jobs.svc'])
  expect(given.get('callers')?.text).toContain('; {"name":"reports","keyFiles":["one.key","two.key"],"orgs":["*"],')
})

const EXACTLY_ONE = 'needs exactly one of socket, minterSocket, keyFiles, jwt and certificate'

test.each([
  ['callers: billing', ['callers (1:10): is not a list']],
  // A list that an edit has emptied would open the proxy to everybody.
  ['callers: []', ['callers (1:10): is empty: name the callers, or remove it to admit everybody']],
  ['callers: [{socket: /a}]', ['callers[0].name (1:11): is required']],
  ['callers:\n  - name: a b\n    socket: /a', ['callers[0].name (2:11): is not a name']],
  ['callers: [{name: a}]', [`callers[0] (1:11): ${EXACTLY_ONE}`]],
  ['callers: [{name: a, socket: /a, keyFiles: [one.key]}]', [`callers[0] (1:11): ${EXACTLY_ONE}`]],
  ['callers: [{name: a, socket: a.sock}]', ['callers[0].socket (1:29): needs an absolute path: write /run/oap/']],
  [
    'callers: [{name: a, sockett: /a}]',
    ['callers[0].sockett (1:30): is not a setting: did you mean callers[0].socket?', EXACTLY_ONE],
  ],
  ['callers: [{name: a, socket: /a, orgs: ["a*b"]}]', ['callers[0].orgs[0] (1:40): is not an org id']],
  // A list that was put in quotes, and no org id.
  ['callers: [{name: a, socket: /a, orgs: ["acme, globex"]}]', ['callers[0].orgs[0] (1:40): is not an org id']],
  ['callers: [{name: a, socket: /a, routes: [/v2]}]', ['callers[0].routes[0] (1:42): is not a route']],
  ['callers: [{name: a, socket: /a, maxInFlight: 0}]', ['callers[0].maxInFlight (1:46): is not a whole number']],
  ['callers: [{name: a, keyFiles: []}]', ['callers[0].keyFiles (1:31): is empty: name a file']],
  ['callers: [{name: a, keyFiles: [jwt.key]}]', ['callers[0].keyFiles[0] (1:32): holds a JWT, not a key: use jwt']],
  [`callers: [{name: a, jwt: {${JWT}, jwks: "http://a.example"}}]`, ['.jwks (1:90): is not a file or an https URL']],
  [`callers: [{name: a, jwt: {${JWT}, jwks: "https://u:hunter2@a"}}]`, ['has a user, a password or a fragment']],
  [`callers: [{name: a, jwt: {${JWT}, jwks: one.key}}]`, ['callers[0].jwt.jwks (1:90): is not JSON']],
  [`${TLS}callers: [{name: a, certificate: "batch.jobs.svc"}]`, ['is not a name in a certificate']],
  [`${TLS}callers: [{name: a, certificate: "dns:*.jobs.svc"}]`, ['is not a name in a certificate']],
  [`${TLS}callers: [{name: a, certificate: "dns:Batch"}]`, ['is not a name in a certificate']],
  [`${TLS}callers: [{name: a, certificate: "dns://batch"}]`, ['is not a name in a certificate']],
  ['callers: [{name: a, certificate: "dns:x"}]', ['callers[0].certificate (1:34): needs listen.tls.clientCaFile']],
  ['listen: {address: "unix:/a"}\ncallers: [{name: a, socket: /a}]', ['is the socket of the proxy itself']],
  ['listen: {callerKeyFile: two.key}\ncallers: [{name: a, socket: /a}]', ['listen.callerKeyFile (1:25): is set, and']],
])('%s', async (yaml, expected) => {
  const problems = await problemsOf(yaml)
  expect(problems).toEqual(expected.map((line) => expect.stringContaining(line)))
  expect(problems.join()).not.toMatch(/eyJ|hunter2/)
})

test('every problem is reported in one run, also between the sound parts of wrong entries', async () => {
  const problems = await problemsOf(`
callers:
  - {name: a, socket: /a, maxInFlight: 0}
  - {name: a, socket: /a, keyFiles: [no.key]}
  - {nam: c, jwt: {}}
  - {name: a b, keyFiles: [no.key, one.key]}
  - {name: e, socket: /e, jwt: {issuer: x}}
`)
  const named = problems.map((line) => /^callers(\S*)/.exec(line)?.[1])
  expect(named.toSorted()).toEqual(
    [
      ...['[0].maxInFlight', '[1].keyFiles[0]', '[1].name', '[1].socket', '[1]'],
      ...['[2].nam', '[2].name', '[2].jwt.issuer', '[2].jwt.audience', '[2].jwt.subject', '[2].jwt.jwks'],
      ...['[3].name', '[3].keyFiles[0]'],
      ...['[4]', '[4].jwt.audience', '[4].jwt.subject', '[4].jwt.jwks'],
    ].toSorted(),
  )
})

describe('a credential that two callers share is refused', () => {
  test.each([
    ['name', '{name: a, socket: /a}, {name: a, socket: /b}', 'name'],
    ['socket', '{name: a, socket: /a}, {name: b, socket: /a}', 'socket'],
    ['key', '{name: a, keyFiles: [one.key, same.key]}, {name: b, keyFiles: [two.key, same.key]}', 'keyFiles'],
    ['claims', `{name: a, jwt: {${JWT}, jwks: jwks.json}}, {name: b, jwt: {${JWT}, jwks: "https://x.example"}}`, 'jwt'],
    ['certificate', '{name: a, certificate: "dns:x"}, {name: b, certificate: "dns:x"}', 'certificate'],
  ])('the same %s', async (_, callers, part) => {
    const problems = await problemsOf(`${TLS}callers: [${callers}]`)
    expect(problems).toEqual([expect.stringMatching(`^callers\\[1\\]\\.${part} \\(2:\\d+\\): .* of caller a`)])
  })
})

test('callers that other machines can reach without TLS get a warning: their keys go in the clear', async () => {
  const warningsWith = async (listen: string) => {
    const yaml = `listen: {${listen}, allowRemote: true}\ncallers: [{name: a, keyFiles: [one.key]}]`
    return (await loadFile(yaml, FILES)).warnings.join()
  }
  expect(await warningsWith('address: "0.0.0.0:1"')).toContain('sends keys and tokens in the clear')
  expect(await warningsWith('address: "localhost:1"')).not.toContain('in the clear')
  expect(await warningsWith('address: "0.0.0.0:1", tls: {certFile: cert.pem, keyFile: key.pem}')).not.toContain('clear')
})
