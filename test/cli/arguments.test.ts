import { describe, expect, test } from 'vitest'
import { helpText, parseArguments, UsageError } from '../../src/cli/arguments.ts'

describe('correct calls', () => {
  test.each([
    ['', { name: 'serve', file: undefined }],
    ['serve', { name: 'serve', file: undefined }],
    ['--config a.yaml', { name: 'serve', file: 'a.yaml' }],
    ['serve --config=a.yaml', { name: 'serve', file: 'a.yaml' }],
    ['--config a.yaml check', { name: 'check', file: 'a.yaml', mint: undefined }],
    ['check --mint acme', { name: 'check', file: undefined, mint: 'acme' }],
    ['check --mint=-acme', { name: 'check', file: undefined, mint: '-acme' }],
    ['sandbox', { name: 'sandbox', port: undefined }],
    ['sandbox --port 0', { name: 'sandbox', port: 0 }],
    ['healthcheck', { name: 'healthcheck', file: undefined }],
    ['healthcheck --config a.yaml', { name: 'healthcheck', file: 'a.yaml' }],
    ['--help', { name: 'help' }],
    ['-h', { name: 'help' }],
    ['help', { name: 'help' }],
    ['check --help', { name: 'help' }],
    ['status --config a.yaml', { name: 'status', file: 'a.yaml', json: false }],
    ['status --json', { name: 'status', file: undefined, json: true }],
    ['--version', { name: 'version' }],
    ['-v', { name: 'version' }],
  ])('%s', (line, expected) => {
    expect(parseArguments(line.split(' ').filter((word) => word !== ''))).toEqual(expected)
  })
})

describe('a wrong call gets one line', () => {
  test.each([
    [['srve'], 'there is no command "srve"'],
    [['constructor'], 'there is no command "constructor"'],
    [['serve', 'check'], 'give one command; "check" is a second one'],
    [['--cnfig', 'a'], "Unknown option '--cnfig'"],
    [['--secret=hunter2'], "Unknown option '--secret'"],
    [['-x'], "Unknown option '-x'"],
    [['--config'], "Option '--config <value>' argument missing"],
    [['--config='], '--config needs a value'],
    [['check', '--mint', ''], '--mint needs a value'],
    [['check', '--mint', '--config'], "Option '--mint' argument is ambiguous"],
    [['serve', '--mint', 'acme'], 'serve takes no --mint'],
    [['--port', '1'], 'serve takes no --port'],
    [['sandbox', '--config', 'a'], 'sandbox takes no --config'],
    [['help', '--port', '1'], 'help takes no --port'],
    [['sandbox', '--port', '65536'], '--port needs a number from 0 to 65535'],
    [['sandbox', '--port', '9e1'], '--port needs a number from 0 to 65535'],
    [['sandbox', '--port='], '--port needs a number from 0 to 65535'],
    [['--help=yes'], "Option '-h, --help' does not take an argument"],
  ])('%j', (argv, expected) => {
    let message = ''
    try {
      parseArguments(argv)
    } catch (error) {
      expect(error).toBeInstanceOf(UsageError)
      message = error instanceof Error ? error.message : ''
    }
    expect(message).toBe(`org-access-proxy: ${expected}; see org-access-proxy --help`)
  })
})

describe('help', () => {
  test('names every command and option, and fits on a screen of 24 by 80', () => {
    for (const name of ['serve', 'check', 'status', 'healthcheck', 'sandbox']) expect(helpText).toContain(`  ${name} [`)
    for (const option of ['config', 'mint', 'json', 'port', 'version']) expect(helpText).toContain(`--${option}`)
    const lines = helpText.trimEnd().split('\n')
    expect(lines.length).toBeLessThan(24)
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(80)
  })
})
