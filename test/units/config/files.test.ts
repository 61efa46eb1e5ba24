import { generateKeyPairSync } from 'node:crypto'
import { chmod, mkdir } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { rootCertificates } from 'node:tls'
import { describe, expect, test } from 'vitest'
import { loadConfig } from '../../../src/config/load.ts'
import { certificate } from '../../support/certificates.ts'
import { type Folder, makeFolder } from '../../support/folder.ts'
import { GOOD, loadFile, loadWith, problemsOf, refusalOf, refusalWith } from './refusal.ts'

const { OAP_APP_SECRET: _, ...WITHOUT_SECRET } = GOOD

const withSecretIn = (file: string) => ({ env: { ...WITHOUT_SECRET, OAP_APP_SECRET_FILE: file } })

async function inFolder<T>(act: (folder: Folder) => Promise<T>): Promise<T> {
  await using folder = await makeFolder()
  return await act(folder)
}

describe('the secret file', () => {
  test.each([
    ['s3cret', 's3cret'],
    ['s3cret\n', 's3cret'],
    ['s3cret\r\n', 's3cret'],
    [' s3cret ', ' s3cret '],
    ['s3:cr:et\n', 's3:cr:et'],
    ['gehéim\n', 'gehéim'],
  ])('%j contains the secret %j', (content, secret) =>
    inFolder(async (folder) => {
      const file = await folder.write('secret', content)
      const { config, warnings } = await loadConfig(withSecretIn(file))
      expect([config.app?.appSecret.reveal(), config.appSecretFile?.path, warnings]).toEqual([secret, file, []])
    }),
  )

  test.each([
    ['', 'is empty: put the secret into it'],
    ['  \n', 'is empty: put the secret into it'],
    ['hunter2\n\n', 'has a second line, or is not text: put only the secret into it'],
    ['hunter2\nhunter2\n', 'has a second line, or is not text: put only the secret into it'],
    ['hunter2\rhunter2', 'has a second line, or is not text: put only the secret into it'],
    ['hunter2\0\0\0', 'has a second line, or is not text: put only the secret into it'],
    [new Uint8Array([0x68, 0xc3]), 'is not UTF-8 text: it may be only half written'],
  ])('%j is refused, and not repeated', (content, message) =>
    inFolder(async (folder) => {
      const lines = await refusalOf(withSecretIn(await folder.write('secret', content)))
      expect(lines).toEqual([`appSecretFile (OAP_APP_SECRET_FILE): ${message}`])
      expect(lines.join()).not.toContain('hunter2')
    }),
  )

  test('a byte order mark is part of the secret, with a warning that names it', () =>
    inFolder(async (folder) => {
      const { config, warnings } = await loadConfig(withSecretIn(await folder.write('secret', '\ufeffs3cret')))
      expect(config.app?.appSecret.reveal()).toBe('\ufeffs3cret')
      expect(warnings).toEqual([
        'appSecretFile (OAP_APP_SECRET_FILE): begins with a byte order mark (U+FEFF), which counts as part of the secret: save the file without it, unless the secret begins so',
      ])
    }))

  test('a missing file, a folder, or a large file is one line', () =>
    inFolder(async (folder) => {
      await mkdir(folder.at('folder'))
      await folder.write('large', 'hunter2'.repeat(10_000))
      for (const [name, message] of [
        ['missing', 'does not exist (ENOENT)'],
        ['folder', 'is a folder, a pipe, a socket or a device: name a regular file'],
        ['large', 'is larger than 64 KiB'],
      ] as const) {
        const lines = await refusalOf(withSecretIn(folder.at(name)))
        expect(lines).toEqual([`appSecretFile (OAP_APP_SECRET_FILE): ${message}`])
      }
    }))

  // A test that runs as root may read everything.
  test.skipIf(process.getuid?.() === 0)('a file without permission names the uid', () =>
    inFolder(async (folder) => {
      const file = await folder.write('secret', 's3cret')
      await chmod(file, 0o000)
      const [line] = await refusalOf(withSecretIn(file))
      expect(line).toContain(`cannot be read by uid ${process.getuid?.()} (EACCES)`)
    }),
  )

  test.each([
    [0o600, false],
    [0o400, false],
    [0o640, true],
    [0o604, true],
  ])('mode %o gets a warning: %s', (mode, isWarned) =>
    inFolder(async (folder) => {
      const file = await folder.write('secret', 's3cret')
      await chmod(file, mode)
      const warning = 'can be read by other users of this machine: chmod 600 prevents that'
      const { warnings } = await loadConfig(withSecretIn(file))
      expect(warnings).toEqual(isWarned ? [`appSecretFile (OAP_APP_SECRET_FILE): ${warning}`] : [])
    }),
  )

  test('a relative path is resolved against the folder of the config file, or for a variable, the working directory', () =>
    inFolder(async (folder) => {
      await mkdir(folder.at('conf'))
      await folder.write('conf/secret', 'from-the-file')
      await folder.write('secret', 'from-the-variable')
      const file = await folder.write('conf/proxy.yaml', 'appSecretFile: secret')
      for (const each of [file, relative(process.cwd(), file)]) {
        const { config } = await loadConfig({ file: each, env: WITHOUT_SECRET })
        expect(config.app?.appSecret.reveal()).toBe('from-the-file')
        expect(config.appSecretFile?.path).toBe(folder.at(join('conf', 'secret')))
      }
      const fromVariable = await loadConfig({ file, ...withSecretIn(relative(process.cwd(), folder.at('secret'))) })
      expect(fromVariable.config.app?.appSecret.reveal()).toBe('from-the-variable')
    }))
})

describe('the secret in the environment', () => {
  test('is accepted with a warning', async () => {
    const { config, warnings } = await loadWith({ OAP_APP_SECRET: 's3cret\n' })
    expect([config.app?.appSecret.reveal(), config.appSecretFile]).toEqual(['s3cret', undefined])
    expect(warnings).toEqual([
      'appSecret (OAP_APP_SECRET): is in the environment, which other processes may read: use appSecretFile',
    ])
  })

  test('is refused when it is blank, or beside a file', () =>
    inFolder(async (folder) => {
      const OAP_APP_SECRET_FILE = await folder.write('secret', 's3cret')
      expect(await refusalWith({ OAP_APP_SECRET: ' ' })).toEqual([
        'appSecret (OAP_APP_SECRET): is empty: put the secret into it',
      ])
      expect(await refusalWith({ OAP_APP_SECRET_FILE })).toEqual([
        'appSecret (OAP_APP_SECRET): is set, and so is appSecretFile: keep one, better the file',
      ])
    }))

  test('is told once where it stands in a config file, also beside a file', () =>
    inFolder(async (folder) => {
      const file = await folder.write('proxy.yaml', 'appSecret: hunter2\nappSecretFile: secret')
      await folder.write('secret', 's3cret')
      expect(await refusalOf({ file, env: WITHOUT_SECRET })).toEqual([
        expect.stringContaining('must not be in a file: use appSecretFile, or the variable OAP_APP_SECRET'),
      ])
    }))
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
