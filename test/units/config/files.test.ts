import { generateKeyPairSync } from 'node:crypto'
import { chmod, mkdir } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { rootCertificates } from 'node:tls'
import { describe, expect, test } from 'vitest'
import { loadConfig } from '../../../src/config/load.ts'
import { certificate } from '../../support/certificates.ts'
import { makeFolder } from '../../support/folder.ts'
import { GOOD, loadFile, loadWith, problemsOf, refusalOf, refusalWith, withFile } from './refusal.ts'

const { OAP_APP_SECRET: _, ...WITHOUT_SECRET } = GOOD

const SECRET = 'appSecretFile: secret'

describe('the secret file', () => {
  const load = (secret: string) => loadFile(SECRET, { secret }, WITHOUT_SECRET)

  test.each([
    ['s3cret', 's3cret'],
    ['s3cret\n', 's3cret'],
    ['s3cret\r\n', 's3cret'],
    ['s3 cret', 's3 cret'],
    ['s3:cr:et\n', 's3:cr:et'],
    ['gehéim\n', 'gehéim'],
  ])('%j contains the secret %j', async (content, secret) => {
    const { config, warnings } = await load(content)
    expect([config.app?.appSecret.reveal(), warnings]).toEqual([secret, []])
  })

  test.each([
    ['', 'is empty: put the secret into it'],
    ['  \n', 'is empty: put the secret into it'],
    ['hunter2\n\n', 'has a second line, or is not text: put only the secret into it'],
    ['hunter2\nhunter2\n', 'has a second line, or is not text: put only the secret into it'],
    ['hunter2\rhunter2', 'has a second line, or is not text: put only the secret into it'],
    ['hunter2\0\0\0', 'has a second line, or is not text: put only the secret into it'],
    [new Uint8Array([0x68, 0xc3]), 'is not UTF-8 text: it may be only half written'],
    ['hunter2'.repeat(10_000), 'is larger than 64 KiB'],
  ])('%j is refused, and not repeated', async (secret, message) => {
    expect(await problemsOf(SECRET, { secret }, WITHOUT_SECRET)).toEqual([`appSecretFile (1:16): ${message}`])
  })

  test('a folder is no file', async () => {
    const problem = 'appSecretFile (1:16): is a folder, a pipe, a socket or a device: name a regular file'
    expect(await problemsOf('appSecretFile: .', {}, WITHOUT_SECRET)).toEqual([problem])
  })

  test.each([
    ['\ufeffs3cret', 'begins with a byte order mark (U+FEFF)'],
    ['"s3cret"', 'stands in quotes'],
    ["'s3cret'\n", 'stands in quotes'],
    ['APP_SECRET=s3cret', 'begins with a name and "="'],
    ['export secret=s3cret', 'begins with a name and "="'],
    ['s3cret \n', 'has a blank at its end'],
    [' s3cret', 'has a blank at its end'],
  ])('%j is the secret, with a warning', async (content, found) => {
    const { config, warnings } = await load(content)
    const secret = content.replace('\n', '')
    expect(config.app?.appSecret.reveal()).toBe(secret)
    const says = `${found}, which counts as part of the secret: save it without that, unless the secret is so`
    expect(warnings).toEqual([expect.stringMatching(/^appSecretFile \(.*\): /)])
    expect(warnings[0]).toContain(says)
    const ofVariable = await loadWith({ OAP_APP_SECRET: secret })
    expect(ofVariable.warnings.join()).toContain(`appSecret (OAP_APP_SECRET): ${says}`)
  })

  test.each(['YWJj==', 'a=', 'it"s', 'one two', '+=x'])('%j gets no warning', async (content) => {
    expect((await load(content)).warnings).toEqual([])
  })

  const withMode = <T>(mode: number, act: (file: string) => Promise<T>) =>
    withFile(
      SECRET,
      async (file, at) => {
        await chmod(at('secret'), mode)
        return await act(file)
      },
      { secret: 's3cret' },
    )

  // A test that runs as root may read everything.
  test.skipIf(process.getuid?.() === 0)('a file without permission names the uid', async () => {
    const [line] = await withMode(0o000, (file) => refusalOf({ file, env: WITHOUT_SECRET }))
    expect(line).toContain(`cannot be read by uid ${process.getuid?.()} (EACCES)`)
  })

  test.each([
    [0o600, false],
    [0o400, false],
    [0o640, true],
    [0o604, true],
  ])('mode %o gets a warning: %s', async (mode, isWarned) => {
    const { warnings } = await withMode(mode, (file) => loadConfig({ file, env: WITHOUT_SECRET }))
    const warning = 'can be read by other users of this machine: chmod 600 prevents that'
    expect(warnings).toEqual(isWarned ? [expect.stringContaining(`): ${warning}`)] : [])
  })

  test('a relative path is resolved against the folder of the config file, or for a variable, the working directory', async () => {
    await using folder = await makeFolder()
    await mkdir(folder.at('conf'))
    await folder.write('conf/secret', 'from-the-file')
    await folder.write('secret', 'from-the-variable')
    const file = await folder.write('conf/proxy.yaml', SECRET)
    for (const each of [file, relative(process.cwd(), file)]) {
      const { config } = await loadConfig({ file: each, env: WITHOUT_SECRET })
      expect(config.app?.appSecret.reveal()).toBe('from-the-file')
      expect(config.appSecretFile?.path).toBe(folder.at(join('conf', 'secret')))
    }
    const env = { ...WITHOUT_SECRET, OAP_APP_SECRET_FILE: relative(process.cwd(), folder.at('secret')) }
    expect((await loadConfig({ file, env })).config.app?.appSecret.reveal()).toBe('from-the-variable')
  })
})

describe('the secret in the environment', () => {
  test('is accepted with a warning', async () => {
    const { config, warnings } = await loadWith({ OAP_APP_SECRET: 's3cret\n' })
    expect([config.app?.appSecret.reveal(), config.appSecretFile]).toEqual(['s3cret', undefined])
    expect(warnings).toEqual([
      'appSecret (OAP_APP_SECRET): is in the environment, which other processes may read: use appSecretFile',
    ])
  })

  test('is refused when it is blank, or beside a file', async () => {
    expect(await refusalWith({ OAP_APP_SECRET: ' ' })).toEqual([
      'appSecret (OAP_APP_SECRET): is empty: put the secret into it',
    ])
    expect(await problemsOf(SECRET, { secret: 's3cret' })).toEqual([
      'appSecret (OAP_APP_SECRET): is set, and so is appSecretFile: keep one, better the file',
    ])
  })
})

test('the caller key and the password of the store are read like the secret; the key must be a valid field value', async () => {
  const yaml = 'listen: {callerKeyFile: key}\nfleet: {store: redis://localhost, passwordFile: password}'
  const { listen, fleet } = (await loadFile(yaml, { key: 'k3y-k3y\n', password: 'sesame\n' })).config
  expect([listen.callerKeyFile, fleet.passwordFile].map((file) => file?.content.reveal())).toEqual([
    'k3y-k3y',
    'sesame',
  ])
  expect(await problemsOf(yaml, { key: 'hunter2 hunter2' })).toEqual([
    'listen.callerKeyFile (1:25): contains blanks or non-ASCII: use visible ASCII only, because the key is sent in a field',
    expect.stringMatching(/^fleet\.passwordFile \(2:49\): does not exist \(ENOENT\); paths here begin in /),
  ])
})

describe('certificates', () => {
  const CUT = 'has a block that begins and does not end: the file may be only half written'

  test('are read from a PEM file, whatever is between them', async () => {
    const [first = '', second = ''] = rootCertificates
    const pem = `our CAs\n${first}\r\nand\n${second}\n`
    const { config } = await loadFile('origin: {caFile: ca.pem}', { 'ca.pem': pem })
    expect(config.origin.caFile?.content).toBe(`${first}\n${second}\n`)
  })

  const NO_CERTIFICATE = '-----BEGIN CERTIFICATE-----\nbm90IG9uZQ==\n-----END CERTIFICATE-----\n'
  test.each([
    ['', 'contains no "-----BEGIN CERTIFICATE-----": give a PEM file'],
    [NO_CERTIFICATE, 'contains a certificate that cannot be read'],
  ])('%j is refused', async (content, message) => {
    expect(await problemsOf('origin: {caFile: ca.pem}', { 'ca.pem': content })).toEqual([
      `origin.caFile (1:18): ${message}`,
    ])
  })

  // A bundle that was cut inside its second block would be taken for a bundle of one.
  test('a bundle that was cut anywhere inside a block is refused', async () => {
    const [first = '', second = ''] = rootCertificates
    const bundle = `${first}\n${second.trimEnd()}`
    const places = [10, 26, 27, 100, second.length - 100, second.length - 20, second.length - 2]
    for (const kept of places) {
      const pem = `${first}\n${second.slice(0, kept)}`
      expect(await problemsOf('origin: {caFile: ca.pem}', { 'ca.pem': pem }), pem.slice(-30)).toEqual([
        `origin.caFile (1:18): ${CUT}`,
      ])
      const swapped = `${second.slice(0, Math.max(kept, 27))}\n${first}`
      expect(await problemsOf('origin: {caFile: ca.pem}', { 'ca.pem': swapped })).toEqual([
        `origin.caFile (1:18): ${CUT}`,
      ])
    }
    const joined = bundle.replace('-----\n-----', '----------')
    expect((await loadFile('origin: {caFile: ca.pem}', { 'ca.pem': joined })).config.origin.caFile?.content).toBe(
      `${bundle}\n`,
    )
  })

  const { cert, key } = certificate('localhost')
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const foreign = privateKey.export({ type: 'pkcs8', format: 'pem' })
  const files = {
    cert: String(cert),
    root: String(certificate('self-signed').cert),
    key: String(key),
    foreign: String(foreign),
    word: 'no key',
    empty: '',
    half: String(key).slice(0, 200),
  }
  test.each(['listen: {tls: {certFile: cert, keyFile: key}}', 'origin: {certFile: cert, keyFile: key}'])(
    'a certificate with its key: %s',
    async (yaml) => {
      const { listen, origin } = (await loadFile(yaml, files)).config
      const { certFile, keyFile } = yaml.startsWith('listen') ? listen.tls : origin
      expect([certFile?.content, keyFile?.content.reveal()]).toEqual([expect.stringContaining('BEGIN'), files.key])
    },
  )

  test.each([
    ['origin: {certFile: cert}', ['origin.certFile (1:20): needs origin.keyFile']],
    ['listen: {tls: {keyFile: key}}', ['listen.tls.keyFile (1:25): needs listen.tls.certFile']],
    ['listen: {tls: {certFile: cert, keyFile: word}}', ['listen.tls.keyFile (1:41): contains no private key']],
    // Node takes an empty key for none at all.
    ['listen: {tls: {certFile: cert, keyFile: empty}}', ['listen.tls.keyFile (1:41): contains no private key']],
    ['origin: {certFile: cert, keyFile: empty}', ['origin.keyFile (1:35): contains no private key']],
    ['origin: {certFile: cert, keyFile: half}', [`origin.keyFile (1:35): ${CUT}`]],
    ['origin: {certFile: cert, keyFile: foreign}', ['origin.keyFile (1:35): is no private key']],
    ['listen: {tls: {certFile: no, keyFile: key}}', ['listen.tls.certFile (1:26): does not exist']],
    ['listen: {tls: {clientCaFile: root}}', ['listen.tls.clientCaFile (1:30): needs listen.tls.certFile']],
    ['listen: {address: "unix:/a", tls: {certFile: cert, keyFile: key}}', ['listen.tls.certFile (1:46): is set, but']],
  ])('%s', async (yaml, expected) => {
    expect(await problemsOf(yaml, files)).toEqual(expected.map((line) => expect.stringContaining(line)))
  })
})

// A mistake that is made sooner or later: the value where the name of its file belongs. Logs and terminals are read by others.
test.each([
  'appSecretFile: hunter2',
  'appSecretFile: /hunter2',
  'listen: {callerKeyFile: hunter2}',
  'callers: [{name: a, keyFiles: [hunter2/a], orgs: ["*"]}]',
  'callers: [{name: a, socket: hunter2, orgs: ["*"]}]',
  'callers: [{name: a, jwt: {issuer: a, audience: b, subject: c, jwks: hunter2}, orgs: ["*"]}]',
  'fleet: {store: redis://localhost, passwordFile: hunter2}',
  'listen: {tls: {certFile: hunter2, keyFile: "-----BEGIN\\nhunter2"}}',
  'minter: {url: "http://localhost:1", keyFile: hunter2}',
  'minter: {url: "http://localhost:1", jwtFile: hunter2}',
])('a secret in the place of a path is not repeated: %s', async (yaml) => {
  const lines = await problemsOf(yaml)
  expect(lines.join()).toMatch(/does not exist|absolute path/)
  expect(lines.join()).not.toContain('hunter2')
})

test('CA certificates of clients without a root are refused: Node would trust no client', async () => {
  const { cert, key } = certificate('localhost')
  const files = { cert, key, root: certificate('self-signed').cert }
  const yaml = (ca: string) => `listen: {tls: {certFile: cert, keyFile: key, clientCaFile: ${ca}}}`
  expect(await problemsOf(yaml('cert'), files)).toEqual([
    expect.stringContaining('contains intermediates only: no client would be trusted; add the root'),
  ])
  await loadFile(yaml('root'), files)
})
