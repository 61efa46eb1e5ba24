import { chmod, mkdir } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { rootCertificates } from 'node:tls'
import { describe, expect, test } from 'vitest'
import { loadConfig } from '../../src/config/load.ts'
import { explainUnreadable } from '../../src/watched-file.ts'
import { makeFolder } from './folder.ts'
import { GOOD, refusalOf } from './refusal.ts'

const { OAP_APP_SECRET: _, ...WITHOUT_SECRET } = GOOD

describe('the secret file', () => {
  test.each([
    ['s3cret', 's3cret'],
    ['s3cret\n', 's3cret'],
    ['s3cret\r\n', 's3cret'],
    [' s3cret ', ' s3cret '],
    ['s3:cr:et\n', 's3:cr:et'],
    ['gehéim\n', 'gehéim'],
    ['\ufeffs3cret', '\ufeffs3cret'],
  ])('%j contains the secret %j', async (content, secret) => {
    await using folder = await makeFolder()
    const file = await folder.write('secret', content)
    const { config, warnings } = await loadConfig({ env: { ...WITHOUT_SECRET, OAP_APP_SECRET_FILE: file } })
    expect(config.appSecret.reveal()).toBe(secret)
    expect(config.appSecretFile).toBe(file)
    // White space at an end is part of the secret, and gets a warning. So is a byte order mark.
    const looksOdd = secret.trim() !== secret
    expect(warnings.join().includes('begins or ends with white space')).toBe(looksOdd)
    expect(warnings.join().includes('appSecret')).toBe(looksOdd)
  })

  test.each([
    ['', 'is empty: put the secret into it'],
    ['\n', 'is empty: put the secret into it'],
    ['  \n', 'is empty: put the secret into it'],
    ['\n\n', 'is empty: put the secret into it'],
    ['hunter2\n\n', 'has a second line, or is not text: put only the secret into it'],
    ['hunter2\nhunter2\n', 'has a second line, or is not text: put only the secret into it'],
    ['hunter2\rhunter2', 'has a second line, or is not text: put only the secret into it'],
    ['hunter2\0\0\0', 'has a second line, or is not text: put only the secret into it'],
    [new Uint8Array([0x68, 0xc3]), 'is not UTF-8 text: it may be only half written'],
    ['hunter2'.repeat(10_000), 'is larger than 64 KiB'],
  ])('%j is refused, and not repeated', async (content, message) => {
    await using folder = await makeFolder()
    const OAP_APP_SECRET_FILE = await folder.write('secret', content)
    const lines = await refusalOf({ env: { ...WITHOUT_SECRET, OAP_APP_SECRET_FILE } })
    const unnamed = lines.map((line) => line.replace(`${OAP_APP_SECRET_FILE} `, ''))
    expect(unnamed).toEqual([`appSecretFile (OAP_APP_SECRET_FILE): ${message}`])
    expect(lines.join()).not.toContain('hunter2')
  })

  test('a missing file, or a folder, is one line', async () => {
    await using folder = await makeFolder()
    await mkdir(folder.at('folder'))
    const lineFor = (name: string) => refusalOf({ env: { ...WITHOUT_SECRET, OAP_APP_SECRET_FILE: folder.at(name) } })
    expect(await lineFor('missing')).toEqual([
      `appSecretFile (OAP_APP_SECRET_FILE): ${folder.at('missing')} does not exist (ENOENT)`,
    ])
    expect(await lineFor('folder')).toEqual([
      `appSecretFile (OAP_APP_SECRET_FILE): ${folder.at('folder')} is a folder, a pipe, a socket or a device: name a regular file`,
    ])
  })

  // A test that runs as root may read everything.
  test.skipIf(process.getuid?.() === 0)('a file without permission names the uid', async () => {
    await using folder = await makeFolder()
    const OAP_APP_SECRET_FILE = await folder.write('secret', 's3cret')
    await chmod(OAP_APP_SECRET_FILE, 0o000)
    const [line] = await refusalOf({ env: { ...WITHOUT_SECRET, OAP_APP_SECRET_FILE } })
    expect(line).toContain(`cannot be read by uid ${process.getuid?.()} (EACCES)`)
  })

  test('the message for EACCES names the usual cause in compose', () => {
    const explained = explainUnreadable(Object.assign(new Error('no'), { code: 'EACCES' }))
    expect(explained).toContain('a file-backed compose secret keeps the owner and mode of the file on the host')
    expect(explained).not.toContain('\n')
  })

  test.each([
    [0o600, false],
    [0o400, false],
    [0o640, true],
    [0o604, true],
  ])('mode %o gets a warning: %s', async (mode, isWarned) => {
    await using folder = await makeFolder()
    const OAP_APP_SECRET_FILE = await folder.write('secret', 's3cret')
    await chmod(OAP_APP_SECRET_FILE, mode)
    const { warnings } = await loadConfig({ env: { ...WITHOUT_SECRET, OAP_APP_SECRET_FILE } })
    const warning =
      'appSecretFile (OAP_APP_SECRET_FILE): can be read by other users of this machine: chmod 600 prevents that'
    expect(warnings.includes(warning)).toBe(isWarned)
  })

  test('a relative path is resolved against the folder of the config file, or for a variable, the working directory', async () => {
    await using folder = await makeFolder()
    await mkdir(folder.at('conf'))
    await folder.write('conf/secret', 'from-the-file')
    await folder.write('secret', 'from-the-variable')
    const file = await folder.write('conf/proxy.yaml', 'appSecretFile: secret')
    const fromFile = await loadConfig({ file, env: WITHOUT_SECRET })
    expect(fromFile.config.appSecret.reveal()).toBe('from-the-file')
    expect(fromFile.config.appSecretFile).toBe(folder.at(join('conf', 'secret')))
    const fromRelativeFile = await loadConfig({ file: relative(process.cwd(), file), env: WITHOUT_SECRET })
    expect(fromRelativeFile.config.appSecretFile).toBe(folder.at(join('conf', 'secret')))
    const OAP_APP_SECRET_FILE = relative(process.cwd(), folder.at('secret'))
    const fromVariable = await loadConfig({ file, env: { ...WITHOUT_SECRET, OAP_APP_SECRET_FILE } })
    expect(fromVariable.config.appSecret.reveal()).toBe('from-the-variable')
  })
})

describe('the secret in the environment', () => {
  test('is accepted with a warning', async () => {
    const { config, warnings } = await loadConfig({ env: { ...GOOD, OAP_APP_SECRET: 's3cret\n' } })
    expect(config.appSecret.reveal()).toBe('s3cret')
    expect(config.appSecretFile).toBeUndefined()
    expect(warnings).toContain(
      'appSecret (OAP_APP_SECRET): is in the environment, which other processes may read: use appSecretFile',
    )
  })

  test('is refused when it is blank, or beside a file', async () => {
    await using folder = await makeFolder()
    const OAP_APP_SECRET_FILE = await folder.write('secret', 's3cret')
    expect(await refusalOf({ env: { ...GOOD, OAP_APP_SECRET: ' ' } })).toEqual([
      'appSecret (OAP_APP_SECRET): is empty: put the secret into it',
    ])
    expect(await refusalOf({ env: { ...GOOD, OAP_APP_SECRET_FILE } })).toEqual([
      'appSecret (OAP_APP_SECRET): is set, and so is appSecretFile: keep one, better the file',
    ])
  })
})

describe('the caller key', () => {
  test('is read like the secret, and must be a valid field value', async () => {
    await using folder = await makeFolder()
    const good = await folder.write('good', 'k3y-k3y\n')
    const bad = await folder.write('bad', 'hunter2 hunter2')
    const { config } = await loadConfig({ env: { ...GOOD, OAP_LISTEN_CALLER_KEY_FILE: good } })
    expect(config.listen.callerKey?.reveal()).toBe('k3y-k3y')
    expect(await refusalOf({ env: { ...GOOD, OAP_LISTEN_CALLER_KEY_FILE: bad } })).toEqual([
      'listen.callerKeyFile (OAP_LISTEN_CALLER_KEY_FILE): contains blanks or non-ASCII: use visible ASCII only, because the key is sent in a field',
    ])
  })
})

describe('further certificates', () => {
  test('are read from a PEM file, whatever is between them', async () => {
    await using folder = await makeFolder()
    const [first = '', second = ''] = rootCertificates
    const OAP_ORIGIN_CA_FILE = await folder.write('ca.pem', `our CAs\n${first}\r\nand\n${second}\n`)
    const { config } = await loadConfig({ env: { ...GOOD, OAP_ORIGIN_CA_FILE } })
    expect(config.origin.caCertificates).toBe(`${first}\n${second}\n`)
  })

  test.each([
    ['', 'contains no "-----BEGIN CERTIFICATE-----": give a PEM file'],
    [
      '-----BEGIN CERTIFICATE-----\nbm90IG9uZQ==\n-----END CERTIFICATE-----\n',
      'contains a certificate that cannot be read',
    ],
  ])('%j is refused', async (content, message) => {
    await using folder = await makeFolder()
    const OAP_ORIGIN_CA_FILE = await folder.write('ca.pem', content)
    expect(await refusalOf({ env: { ...GOOD, OAP_ORIGIN_CA_FILE } })).toEqual([
      `origin.caFile (OAP_ORIGIN_CA_FILE): ${message}`,
    ])
  })
})
