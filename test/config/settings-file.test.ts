import { chmod, mkdir } from 'node:fs/promises'
import { describe, expect, test } from 'vitest'
import { loadConfig } from '../../src/config/load.ts'
import { ConfigRefused } from '../../src/config/problem.ts'
import { readSettingsFile } from '../../src/config/settings-file.ts'
import { fc } from '../support/properties.ts'
import { makeFolder } from './folder.ts'
import { GOOD, refusalOf } from './refusal.ts'

/** The problems of a file with this content, without its path. */
async function problemsOf(content: string | Uint8Array): Promise<string[]> {
  await using folder = await makeFolder()
  const file = await folder.write('proxy.yaml', content)
  const lines = await refusalOf({ file, env: GOOD })
  return lines.map((line) => line.replace(`${file}:`, '').replaceAll(file, 'the file'))
}

describe('keys', () => {
  test.each([
    ['apId: x', 'apId (1:1): is not a setting: did you mean appId?'],
    ['listen: {adress: x}', 'listen.adress (1:10): is not a setting: did you mean listen.address?'],
    ['tokens:\n  lifeTime: 5m', 'tokens.lifeTime (2:3): is not a setting: did you mean tokens.lifetime?'],
    ['tokns: {}', 'tokns (1:1): is not a setting: did you mean tokens?'],
    ['maxOrgs: 5', 'maxOrgs (1:1): is not a setting: remove it'],
    ['somethingElse: 5', 'somethingElse (1:1): is not a setting: remove it'],
    [
      'listen.address: x',
      'listen.address (1:1): is written on one line: write "listen:", and "address: …" indented below it',
    ],
    ['"a\\nb": 1', '"a\\nb" (1:1): is not a setting: remove it'],
    ['__proto__: {x: 1}', '__proto__ (1:1): is not a setting: remove it'],
    ['constructor: 1', 'constructor (1:1): is not a setting: remove it'],
    ['7: x', '7 (1:1): is not a setting: remove it'],
    ['? [a]\n: x', '"[ a ]" (1:1): is not a setting: remove it'],
    ['appId: a\nappId: b', 'appId (2:1): is given twice: keep one'],
    ['log: {level: info, level: warn}', 'log.level (1:20): is given twice: keep one'],
    ['log: {}\nlog: {}', 'log (2:1): is given twice: keep one'],
    ['appSecret: hunter2', 'appSecret (1:1): must not be in a file: use appSecretFile, or the variable OAP_APP_SECRET'],
  ])('%j', async (content, expected) => {
    expect(await problemsOf(content)).toEqual([expected])
  })
})

describe('values', () => {
  test.each([
    ['appId:', 'appId (1:1): has no value: give it one, or remove the key'],
    ['appId: null', 'appId (1:1): has no value: give it one, or remove the key'],
    ['listen: 5', 'listen (1:9): is a group: write its settings below it, indented'],
    ['listen: [address]', 'listen (1:9): is a group: write its settings below it, indented'],
    ['log: {level: {a: b}}', 'log.level (1:14): is not one of trace, debug, info, warn, error, fatal, silent'],
    ['listen: {hosts: a.example}', 'listen.hosts (1:17): "a.example" is not a list: write [one, two]'],
    ['listen: {hosts: [7]}', 'listen.hosts (1:17): 7 is not text: put it in quotes'],
    ['orgs: {allow: [[a]]}', 'orgs.allow (1:15): is not text: put it in quotes'],
    ['orgs: {allow: [0123]}', 'orgs.allow (1:15): "0123" is not in'],
    ['listen: {maxInFlight: "5"}', 'listen.maxInFlight (1:23): "5" is not a whole number from 1 to 1000000'],
    ['listen: {idleTimeout: 60}', 'listen.idleTimeout (1:23): 60 has no unit: write 250ms, 30s, 5m or 1h'],
    ['listen: {allowRemote: yes}', 'listen.allowRemote (1:23): "yes" is not true or false'],
    ['listen: {socketMode: 432}', 'listen.socketMode (1:22): 432 is not text: put it in quotes'],
    [
      'appId: &a x\nlog: {level: *a}',
      'log.level (2:14): "x" is not one of trace, debug, info, warn, error, fatal, silent',
    ],
  ])('%j', async (content, expected) => {
    if (expected.endsWith('is not in')) return expect(await acceptedOrgs(content)).toEqual(['0123'])
    expect(await problemsOf(content)).toContain(expected)
  })

  test.each(['0660', "'0660'", '0o660'])('a socket mode may be written %s', async (written) => {
    await using folder = await makeFolder()
    const file = await folder.write('proxy.yaml', `listen: {socketMode: ${written}}`)
    expect((await loadConfig({ file, env: GOOD })).config.listen.socketMode).toBe(0o660)
  })

  test('off is text, not false, with or without quotes', async () => {
    await using folder = await makeFolder()
    const file = await folder.write('proxy.yaml', 'admin: {address: off}\nlog: {requests: "off"}')
    const { config } = await loadConfig({ file, env: GOOD })
    expect(config.admin.address).toBe('off')
    expect(config.log.requests).toBe('off')
  })
})

async function acceptedOrgs(content: string): Promise<readonly string[]> {
  await using folder = await makeFolder()
  const file = await folder.write('proxy.yaml', content)
  return (await loadConfig({ file, env: GOOD })).config.orgs.allow
}

describe('a file that is no configuration', () => {
  test.each([
    ['appId: [hunter2', '(1:16)', 'bad indent'],
    ['appId: "hunter2', '(1:16)', 'missing char'],
    ['appId: "\\qhunter2"', '(1:9)', 'bad dq escape'],
    ['appId: @hunter2', '(1:8)', 'bad scalar start'],
    ['appId: !hunter2 x', '(1:8)', 'tag resolve failed'],
    ['listen: {hosts: [*]}', '(1:18)', 'bad alias'],
    ['appId: a\n---\nappId: hunter2', '(2:1)', 'multiple docs'],
    ['log:\n\tlevel: info', '(2:1)', 'tab as indent'],
  ] as const)('%j is not valid YAML', async (content, place, found) => {
    const remedy = 'indent with spaces, and quote values with special characters'
    expect(await problemsOf(content)).toEqual([`config file ${place}: is not valid YAML here (${found}): ${remedy}`])
  })

  test.each([
    ['- appId', '(1:1): is not a mapping: write lines of "key: value"'],
    ['hunter2', '(1:1): is not a mapping: write lines of "key: value"'],
    [new Uint8Array([0x61, 0x3a, 0x20, 0xff]), '(the file): is not UTF-8 text: save it as UTF-8'],
    ['[ '.repeat(20_000), '(the file): is nested too deeply: is it the right file?'],
    ['- '.repeat(20_000), '(the file): is nested too deeply: is it the right file?'],
    [
      Array.from({ length: 1_000 }, (_, depth) => `${' '.repeat(depth)}a:`).join('\n'),
      '(the file): is nested too deeply: is it the right file?',
    ],
    [`# ${'x'.repeat(524_288)}`, '(the file): the file is larger than 512 KiB'],
  ])('%j', async (content, expected) => {
    const problems = await problemsOf(content)
    expect(problems).toEqual([`config file ${expected}`])
    expect(problems.join()).not.toContain('hunter2')
  })

  test('an alias bomb is refused, and quickly', async () => {
    const levels = Array.from({ length: 30 }, (_, level) => `l${level + 1}: &l${level + 1} [*l${level}, *l${level}]`)
    const problems = await problemsOf(['l0: &l0 lol', ...levels, 'orgs: {allow: *l30}'].join('\n'))
    expect(problems).toEqual([
      expect.stringContaining('has an alias ("*") or a merge ("<<") without its mapping, or too many of them'),
    ])
  })

  test('an alias stands for its anchor, and "<<" takes over a mapping', async () => {
    await using folder = await makeFolder()
    const file = await folder.write(
      'proxy.yaml',
      'orgs: {allow: &some [acme, globex]}\ntokens:\n  warm: *some\nlog: &log {level: warn}\nadmin: {address: off}\n',
    )
    expect((await loadConfig({ file, env: GOOD })).config.tokens.warm).toEqual(['acme', 'globex'])
    await folder.write('one.key', 'the-first-key-0123456789')
    const callers = await folder.write(
      'callers.yaml',
      'callers:\n  - &one {name: a, keyFiles: [one.key], orgs: [acme]}\n  - {<<: *one, name: b, orgs: [7]}',
    )
    const lines = await refusalOf({ file: callers, env: GOOD })
    expect(lines.slice(0, 2).map((line) => line.replace(callers, ''))).toEqual([
      expect.stringMatching(/^callers\[1\]\.orgs\[0\] \(:3:\d+\): is not text/),
      // It came with the mapping, so its place is the alias or the entry.
      expect.stringMatching(/^callers\[1\]\.keyFiles\[0\] \(:3:\d+\): is a key file of caller a/),
    ])
  })

  // Parsing, or a suggestion for each of 40,000 names, must not keep the process from its requests.
  test('a large file of another kind gets some twenty problems, soon', async () => {
    const startedAt = performance.now()
    await using folder = await makeFolder()
    const content = Array.from({ length: 30_000 }, (_, index) => `lisen${index}: x`).join('\n')
    const file = await folder.write('proxy.yaml', content)
    const refused = await loadConfig({ file, env: GOOD }).catch((error: unknown) => error)
    const lines = refused instanceof ConfigRefused ? refused.message.split('\n') : []
    expect([lines.length, lines.at(-1)]).toEqual([21, 'there are more problems: is it the right file?'])
    expect(performance.now() - startedAt).toBeLessThan(5_000)
  })

  test('a file that is missing, is a folder, or may not be read', async () => {
    await using folder = await makeFolder()
    const missing = folder.at('missing.yaml')
    expect(await refusalOf({ file: missing, env: GOOD })).toEqual([
      `config file (${missing}): ${missing} does not exist (ENOENT)`,
    ])
    await mkdir(folder.at('folder'))
    expect(await refusalOf({ file: folder.at('folder'), env: GOOD })).toEqual([
      expect.stringContaining('is a folder, a pipe, a socket or a device: name a regular file'),
    ])
  })

  test('if the file cannot be parsed, no setting is called missing', async () => {
    await using folder = await makeFolder()
    const file = await folder.write('proxy.yaml', 'appId: "')
    expect(await refusalOf({ file, env: { OAP_LOG_LEVEL: 'loud' } })).toEqual([
      expect.stringContaining('is not valid YAML here'),
      expect.stringContaining('log.level (OAP_LOG_LEVEL)'),
    ])
  })

  test('reading any text returns values or problems', async () => {
    await using folder = await makeFolder()
    await chmod(folder.path, 0o700)
    const scraps = fc.constantFrom(
      ...'listen appId : - [ ] { } " \' *a &a !!str # ? , 0x1 ~ --- << @'.split(' '),
      ...[' ', '\n', '  ', '\t', '|\n', '- ', '&a ', '? ', '%YAML 1.1\n', '---\n'],
    )
    const content = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.array(scraps, { maxLength: 30 }).map((parts) => parts.join('')),
    )
    await fc.assert(
      fc.asyncProperty(content, async (text) => {
        const { isUnderstood, problems } = await readSettingsFile(await folder.write('proxy.yaml', text))
        expect(isUnderstood || problems.length > 0).toBe(true)
        for (const { key, message } of problems) expect(`${key}${message}`).not.toMatch(/[\r\n]/)
      }),
      { numRuns: 150 },
    )
  })
})
