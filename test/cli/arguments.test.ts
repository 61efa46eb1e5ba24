import { describe, expect, test } from 'vitest'
import { helpText, parseArguments, UsageError } from '../../src/cli/arguments.ts'

describe('correct calls', () => {
  test.each([
    ['', { name: 'serve', file: undefined }],
    ['serve', { name: 'serve', file: undefined }],
    ['--config a.yaml', { name: 'serve', file: 'a.yaml' }],
    ['serve --config=a.yaml', { name: 'serve', file: 'a.yaml' }],
    ['--config a.yaml check', { name: 'check', file: 'a.yaml', mint: undefined, diff: false }],
    ['check --mint acme', { name: 'check', file: undefined, mint: 'acme', diff: false }],
    ['check --mint=-acme', { name: 'check', file: undefined, mint: '-acme', diff: false }],
    ['check --diff', { name: 'check', file: undefined, mint: undefined, diff: true }],
    ['sandbox', { name: 'sandbox', port: undefined }],
    ['sandbox --port 0', { name: 'sandbox', port: 0 }],
    ['healthcheck', { name: 'healthcheck', file: undefined }],
    ['healthcheck --config a.yaml', { name: 'healthcheck', file: 'a.yaml' }],
    ['--help', { name: 'help', text: helpText }],
    ['-h', { name: 'help', text: helpText }],
    ['help', { name: 'help', text: helpText }],
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
  test.each(['serve', 'check', 'status', 'healthcheck', 'sandbox'])('%s has its own help', (name) => {
    const command = parseArguments([name, '--help'])
    const text = command.name === 'help' ? command.text : ''
    expect(text).toMatch(new RegExp(`^Usage: org-access-proxy \\[?${name}`))
    expect(helpText).toContain(`  ${name} [`)
    // The help names exactly the options that the command accepts.
    for (const option of ['--config', '--mint', '--port']) {
      let isTaken = true
      try {
        parseArguments([name, option, '1'])
      } catch {
        isTaken = false
      }
      expect([option, text.includes(option)]).toEqual([option, isTaken])
    }
  })

  test.each([
    ['', helpText],
    ...['serve', 'check', 'status', 'healthcheck', 'sandbox'].map((name) => [name, textOf(name)]),
  ])('"%s" fits on a screen of 24 by 80', (_, text = '') => {
    const lines = text.trimEnd().split('\n')
    expect(lines.length).toBeLessThan(24)
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(80)
  })
})

function textOf(name: string): string {
  const command = parseArguments([name, '--help'])
  return command.name === 'help' ? command.text : ''
}
