import { expect, test } from 'vitest'
import { helpText, parseArguments, UsageError } from '../../src/cli/arguments.ts'

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
  ['--help', { name: 'help' }],
  ['-h', { name: 'help' }],
  ['help', { name: 'help' }],
  ['check --help', { name: 'help' }],
  ['status --config a.yaml', { name: 'status', file: 'a.yaml' }],
  ['status --json', { name: 'status', json: true }],
  ['--version', { name: 'version' }],
  ['-v', { name: 'version' }],
])('%s', (line, expected) => {
  expect(parseArguments(line.split(' ').filter((word) => word !== ''))).toEqual(expected)
})

test.each([
  [['srve'], 'there is no command "srve"'],
  [['constructor'], 'there is no command "constructor"'],
  [['a\u001b[2J'], 'there is no command "a\\u001b[2J"'],
  [['serve', 'check'], 'give one command; "check" is a second one'],
  [['--cnfig', 'a'], "Unknown option '--cnfig'"],
  [['--secret=hunter2'], "Unknown option '--secret'"],
  [['--config'], "Option '--config <value>' argument missing"],
  [['--config='], '--config needs a value'],
  [['check', '--mint', ''], '--mint needs a value'],
  [['check', '--mint', '--config'], "Option '--mint' argument is ambiguous"],
  [['serve', '--mint', 'acme'], 'serve takes no --mint'],
  [['sandbox', '--config', 'a'], 'sandbox takes no --config'],
  [['help', '--port', '1'], 'help takes no --port'],
  [['sandbox', '--port', '65536'], '--port needs a number from 0 to 65535'],
  [['sandbox', '--port', '9e1'], '--port needs a number from 0 to 65535'],
  [['--help=yes'], "Option '-h, --help' does not take an argument"],
])('%j gets one line', (argv, expected) => {
  expect(() => parseArguments(argv)).toThrow(new UsageError(expected))
  expect(new UsageError('x').message).toBe('org-access-proxy: x; see org-access-proxy --help')
})

test('the help names every command and option, and fits on a screen of 24 by 80', () => {
  for (const name of ['serve', 'check', 'status', 'healthcheck', 'sandbox']) expect(helpText).toContain(`  ${name} [`)
  for (const option of ['config', 'mint', 'json', 'port', 'version']) expect(helpText).toContain(`--${option}`)
  const lines = helpText.trimEnd().split('\n')
  expect(lines.length).toBeLessThan(24)
  for (const line of lines) expect(line.length).toBeLessThanOrEqual(80)
})
