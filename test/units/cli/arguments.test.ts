import { expect, test } from 'vitest'
import { parseArguments, UsageError } from '../../../src/cli/arguments.ts'
import { COMMAND_NAMES, helpOf, helpText, OPTIONS } from '../../../src/cli/commands.ts'

test.each([
  ['', { name: 'serve' }],
  ['serve', { name: 'serve' }],
  ['--config a.yaml', { name: 'serve', file: 'a.yaml' }],
  ['serve --config=a.yaml', { name: 'serve', file: 'a.yaml' }],
  ['--config a.yaml check', { name: 'check', file: 'a.yaml' }],
  ['check --mint acme', { name: 'check', mint: 'acme' }],
  ['check --mint=-acme', { name: 'check', mint: '-acme' }],
  ['sandbox', { name: 'sandbox' }],
  ['sandbox --port 0', { name: 'sandbox', port: 0 }],
  ['healthcheck --config a.yaml', { name: 'healthcheck', file: 'a.yaml' }],
  ['-c a.yaml', { name: 'serve', file: 'a.yaml' }],
  ['serve -c a.yaml --config b.yaml', { name: 'serve', files: ['a.yaml', 'b.yaml'] }],
  ['check -c a.yaml -c b.yaml', { name: 'check', files: ['a.yaml', 'b.yaml'] }],
  ['check -c a.yaml', { name: 'check', file: 'a.yaml' }],
  ['sandbox --like a.json', { name: 'sandbox', like: 'a.json' }],
  ['probe --org acme --wait 30m --yes --json', { name: 'probe', org: 'acme', wait: '30m', yes: true, json: true }],
  ['--help', { name: 'help', text: helpText }],
  ['-h', { name: 'help', text: helpText }],
  ['help', { name: 'help', text: helpText }],
  ['help me', { name: 'help', text: helpText }],
  ['check --help', { name: 'help', text: helpOf('check') }],
  ['help check', { name: 'help', text: helpOf('check') }],
  ['status --config a.yaml', { name: 'status', file: 'a.yaml' }],
  ['status --json', { name: 'status', json: true }],
  ['purge acme', { name: 'purge', operand: 'acme' }],
  ['purge --all -c a.yaml', { name: 'purge', all: true, file: 'a.yaml' }],
  ['stop', { name: 'stop' }],
  ['--version', { name: 'version' }],
  ['-v', { name: 'version' }],
])('%s', (line, expected) => {
  expect(parseArguments(line.split(' ').filter((word) => word !== ''))).toEqual(expected)
})

test('the operand of explain is one argument', () => {
  const argv = ['explain', '--org', 'acme', 'GET /v2/x', '--caller=billing']
  expect(parseArguments(argv)).toMatchObject({ name: 'explain', org: 'acme', caller: 'billing', operand: 'GET /v2/x' })
})

test.each([
  [['srve'], 'there is no command "srve"'],
  [['probe'], 'probe needs --org'],
  [['purge'], 'purge needs ORG or --all'],
  [['purge', 'acme', '--all'], 'give ORG or --all, not both'],
  [['explain'], 'explain needs "METHOD /path"'],
  [['explain', 'GET', '/v2/x'], 'give one command; "/v2/x" is a second one'],
  [['constructor'], 'there is no command "constructor"'],
  [['a\u001b[2J'], 'there is no command "a\\u001b[2J"'],
  [['serve', 'check'], 'give one command; "check" is a second one'],
  [['--cnfig', 'a'], "Unknown option '--cnfig'"],
  [['--secret=hunter2'], "Unknown option '--secret'"],
  [['--config'], "Option '-c, --config <value>' argument missing"],
  [['--config='], '--config needs a value'],
  [['check', '--mint', ''], '--mint needs a value'],
  [['check', '--mint', '--config'], "Option '--mint' argument is ambiguous"],
  [['serve', '--mint', 'acme'], 'serve takes no --mint'],
  [['-c', 'a', '--config='], '--config needs a value'],
  [['status', '-c', 'a', '-c', 'b'], 'status takes one --config'],
  [['sandbox', '--config', 'a'], 'sandbox takes no --config'],
  [['help', '--port', '1'], 'help takes no --port'],
  [['sandbox', '--port', '65536'], '--port needs a number from 0 to 65535'],
  [['sandbox', '--port', '9e1'], '--port needs a number from 0 to 65535'],
  [['--help=yes'], "Option '-h, --help' does not take an argument"],
])('%j gets one line', (argv, expected) => {
  expect(() => parseArguments(argv)).toThrow(new UsageError(expected))
  expect(new UsageError('x').message).toBe('org-access-proxy: x; see org-access-proxy --help')
})

test('the help names every command, and fits on a screen of 24 by 80', () => {
  for (const name of COMMAND_NAMES) expect(helpText).toMatch(new RegExp(`^ {2}.*\\b${name}\\b`, 'm'))
  const lines = helpText.trimEnd().split('\n')
  expect(lines.length).toBeLessThan(24)
  for (const line of lines) expect(line.length).toBeLessThanOrEqual(80)
})

test('the help of a command names each of its options', () => {
  const help = helpOf('probe')
  expect(help).toMatch(/^Usage: org-access-proxy probe \[-c FILE\] --org ORG \[--path PATH\] /)
  for (const option of ['config', 'org', 'path', 'wait', 'yaml', 'json', 'yes'] as const) {
    expect(help).toContain(`--${option}`)
    expect(help).toContain(OPTIONS[option].says)
  }
  for (const line of COMMAND_NAMES.flatMap((name) => helpOf(name).split('\n').slice(1))) {
    expect(line.length).toBeLessThanOrEqual(100)
  }
})
