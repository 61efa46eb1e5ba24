import { mkdir } from 'node:fs/promises'
import { describe, expect, test } from 'vitest'
import { loadAdminAddress } from '../../../src/cli/admin-address.ts'
import { loadConfig } from '../../../src/config/load.ts'
import { ConfigRefused } from '../../../src/config/problem.ts'
import { makeFolder } from '../../support/folder.ts'
import { scaled } from '../../support/pace.ts'
import { fc } from '../../support/properties.ts'
import { GOOD, loadFile, problemsOf, refusalOf, withFile } from './refusal.ts'

const LEVELS = 'is not one of trace, debug, info, warn, error, fatal, silent'

describe('a wrong name or value is reported with its place', () => {
  test.each([
    ['apId: x', 'apId (1:7): is not a setting: did you mean appId?'],
    ['listen: {adress: x}', 'listen.adress (1:18): is not a setting: did you mean listen.address?'],
    ['tokens:\n  lifeTime: 5m', 'tokens.lifeTime (2:13): is not a setting: did you mean tokens.lifetime?'],
    ['base_url: x', 'base_url (1:11): is not a setting: did you mean baseUrl?'],
    ['token: {maxOrgs: 1}', 'token (1:8): is not a setting: did you mean tokens?'],
    ['tokns: {}', 'tokns (1:8): is not a setting: did you mean tokens?'],
    ['maxOrgs: 5', 'maxOrgs (1:10): is not a setting: correct or remove it'],
    ['listen.address: x', 'listen.address (1:1): is not a setting: correct or remove it'],
    ['"a\\nb": 1', '"a\\nb" (1:1): is not a setting: correct or remove it'],
    ['__proto__: {x: 1}', '__proto__ (1:12): is not a setting: correct or remove it'],
    ['constructor: 1', 'constructor (1:14): is not a setting: correct or remove it'],
    ['? [a]\n: x', '"[ a ]" (1:1): is not a setting: correct or remove it'],
    ['log: {level: info, level: warn}', 'config file (1:20): gives this name twice: keep one'],
    [
      'appSecret: hunter2',
      'appSecret (1:12): must not be in a file: use appSecretFile, or the variable OAP_APP_SECRET',
    ],
    ['log:\n  level:', 'log.level (2:9): has no value: give it one, or remove the name'],
    ['orgs: {allow: null}', 'orgs.allow (1:15): has no value: give it one, or remove the name'],
    ['listen: [address]', 'listen (1:9): is not a mapping: write names and values below it, indented'],
    ['log: {level: {a: b}}', `log.level (1:14): ${LEVELS}`],
    ['listen: {hosts: a.example}', 'listen.hosts (1:17): "a.example" is not a list: write [one, two]'],
    ['orgs: {allow: [b, [a]]}', 'orgs.allow[1] (1:19): is not text'],
    ['listen: {maxInFlight: 0}', 'listen.maxInFlight (1:23): "0" is not a whole number from 1 to 1000000'],
    ['listen: {idleTimeout: 60}', 'listen.idleTimeout (1:23): "60" is not a duration: write 250ms, 30s, 5m or 1h'],
    ['listen: {allowRemote: yes}', 'listen.allowRemote (1:23): "yes" is not true or false'],
    ['listen: {socketMode: 432}', 'listen.socketMode (1:22): "432" is not a file mode'],
    ['appId: &a x\nlog: {level: *a}', `log.level (2:14): "x" ${LEVELS}`],
    ['tokens: {lifetime: 10}', 'tokens.lifetime (1:20): "10" is not a duration: write 250ms, 30s, 5m, 1h or auto'],
    ['tokens: {lifetime: 1ms}', 'tokens.lifetime (1:20): "1ms" is not between 100ms and 168h'],
  ])('%j', async (content, expected) => {
    expect(await problemsOf(content)).toEqual([expect.stringContaining(expected)])
  })
})

test.each(['0660', "'0660'", '0o660'])('a socket mode may be written %s', async (written) => {
  expect((await loadFile(`listen: {socketMode: ${written}}`)).config.listen.socketMode).toBe(0o660)
})

test('off is text, and so is an org id of digits', async () => {
  const { config } = await loadFile('admin: {address: off}\nlog: {requests: "off"}\norgs: {allow: [0123, 7]}')
  expect([config.admin.address, config.log.requests, config.orgs.allow]).toEqual(['off', 'off', ['0123', '7']])
})

test('an alias stands for its anchor, and "<<" takes over a mapping', async () => {
  const yaml = 'orgs: {allow: &some [acme, globex]}\ntokens:\n  warm: *some\nlog: &log {level: warn}\n'
  expect((await loadFile(yaml)).config.tokens.warm).toEqual(['acme', 'globex'])
  const callers = 'callers:\n  - &one {name: a, keyFiles: [one.key], orgs: [acme]}\n  - {<<: *one, orgs: ["a b"]}'
  expect(await problemsOf(callers, { 'one.key': 'the-first-key-0123456789' })).toEqual([
    expect.stringMatching(/^callers\[1\]\.orgs\[0\] \(3:\d+\): is not an org id/),
    // They came with the mapping, so their place is the entry.
    expect.stringMatching(/^callers\[1\]\.name \(3:\d+\): is the name of caller a/),
    expect.stringMatching(/^callers\[1\]\.keyFiles \(3:\d+\): hold a key of caller a/),
  ])
})

describe('a file that is no configuration', () => {
  test.each([
    ['appId: [hunter2', '(1:16)', 'bad indent'],
    ['appId: "\\qhunter2"', '(1:9)', 'bad dq escape'],
    ['appId: !hunter2 x', '(1:8)', 'tag resolve failed'],
    ['appId: a\n---\nappId: hunter2', '(2:1)', 'multiple docs'],
    ['log:\n\tlevel: info', '(2:1)', 'tab as indent'],
  ] as const)('%j is not valid YAML', async (content, place, found) => {
    const remedy = 'indent with spaces, and quote values with special characters'
    expect(await problemsOf(content)).toEqual([`config file ${place}: is not valid YAML here (${found}): ${remedy}`])
  })

  test.each([
    ['- appId', '(1:1): is not a mapping: write lines of "key: value"'],
    ['hunter2', '(1:1): is not a mapping: write lines of "key: value"'],
    ['appId: *a', '(the file): has an alias ("*") without its anchor, or too many of them'],
  ])('%j', async (content, expected) => {
    expect(await problemsOf(content)).toEqual([`config file ${expected}`])
  })

  // Parsing, or a suggestion for each of 40,000 names, must not keep the process from its requests.
  test('a large file of another kind gets some twenty problems, soon', async () => {
    const startedAt = performance.now()
    const content = Array.from({ length: 30_000 }, (_, index) => `lisen${index}: x`).join('\n')
    const lines = await problemsOf(content)
    expect([lines.length, lines.at(-1)]).toEqual([21, 'there are more problems: is it the right file?'])
    expect(performance.now() - startedAt).toBeLessThan(scaled(5_000))
  })

  test('a file that is missing, too large, or a folder', async () => {
    await using folder = await makeFolder()
    const missing = folder.at('missing.yaml')
    expect(await refusalOf({ file: missing, env: GOOD })).toEqual([`config file (${missing}): does not exist (ENOENT)`])
    const large = await folder.write('large.yaml', `# ${'x'.repeat(524_288)}`)
    expect(await refusalOf({ file: large, env: GOOD })).toEqual([expect.stringContaining('is larger than 512 KiB')])
    await mkdir(folder.at('folder'))
    expect(await refusalOf({ file: folder.at('folder'), env: GOOD })).toEqual([
      expect.stringContaining('is a folder, a pipe, a socket or a device: name a regular file'),
    ])
  })

  test('if the file cannot be parsed, no setting is called missing', async () => {
    const lines = await withFile('appId: "', (file) => refusalOf({ file, env: { OAP_LOG_LEVEL: 'loud' } }))
    expect(lines).toEqual([
      expect.stringContaining('is not valid YAML here'),
      expect.stringContaining('log.level (OAP_LOG_LEVEL)'),
    ])
  })

  test('the admin address loads from what is right', async () => {
    const env = { OAP_ADMIN_ADDRESS: 'localhost:1234', OAP_APP_SECRET_FILE: 'no/such/file' }
    expect(await loadAdminAddress({ env })).toEqual({ kind: 'tcp', host: 'localhost', port: 1234 })
    await expect(loadAdminAddress({ env: { OAP_ADMIN_ADDRESS: 'here' } })).rejects.toThrow(/^admin\.address \(/)
    await withFile('admin: [', async (file) => {
      expect(await loadAdminAddress({ file, env })).toMatchObject({ port: 1234 })
      expect(await loadAdminAddress({ file, env: {} }), 'the default').toMatchObject({ port: 9090 })
    })
    // The file was broken while the proxy serves.
    for (const fault of ['orgs: {allow: [', '  orgs: x', 'log: {}\nlog: {}', 'orgs: *none']) {
      await withFile(`admin: {address: 'localhost:1235'}\n${fault}`, async (file) => {
        expect(await loadAdminAddress({ file, env: {} }), fault).toMatchObject({ port: 1235 })
      })
    }
  })

  test('any text gives settings or problems, each on one line', async () => {
    const scraps = fc.constantFrom(
      ...'listen appId : - [ ] { } " \' *a &a !!str # ? , 0x1 ~ --- << @'.split(' '),
      ...[' ', '\n', '  ', '\t', '|\n', '- ', '&a ', '? ', '%YAML 1.1\n', '---\n'],
    )
    const content = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.array(scraps, { maxLength: 30 }).map((parts) => parts.join('')),
    )
    await using folder = await makeFolder()
    await fc.assert(
      fc.asyncProperty(content, async (text) => {
        const file = await folder.write('proxy.yaml', text)
        const refused = await loadConfig({ file, env: GOOD }).catch((error: unknown) => error)
        if (refused instanceof Error) expect(refused).toBeInstanceOf(ConfigRefused)
        if (refused instanceof ConfigRefused) expect(refused.lines.join()).not.toMatch(/[\r\n]/)
      }),
      { numRuns: 40 },
    )
  })
})
