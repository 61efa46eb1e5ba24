import { describe, expect, test } from 'vitest'
import { environmentWarnings, type ProcessFacts } from '../../src/config/environment-warnings.ts'

const QUIET: ProcessFacts = {
  env: { PATH: '/bin', NODE_OPTIONS: '--max-old-space-size=200', NODE_ENV: 'production' },
  execArgv: ['--disable-sigusr1'],
  nodeVersion: '24.11.0',
  today: new Date('2026-11-20'),
  usesProxyFromEnv: false,
}

const withEnv = (env: Record<string, string>) => environmentWarnings({ ...QUIET, env })

test('a usual environment is worth no word', () => {
  expect(environmentWarnings(QUIET)).toEqual([])
})

describe('what undoes the protection is told', () => {
  test.each([
    [{ NODE_TLS_REJECT_UNAUTHORIZED: '0' }, 'NODE_TLS_REJECT_UNAUTHORIZED=0'],
    [{ NODE_OPTIONS: '--inspect' }, '--inspect'],
    [{ NODE_OPTIONS: '--max-old-space-size=99 --inspect-brk=0.0.0.0:9229' }, '--inspect-brk'],
    [{ NODE_OPTIONS: '--heapsnapshot-signal=SIGUSR2' }, '--heapsnapshot-signal'],
    [{ NODE_OPTIONS: '--heapsnapshot-near-heap-limit=1' }, '--heapsnapshot-near-heap-limit'],
    [{ NODE_OPTIONS: '--insecure-http-parser' }, '--insecure-http-parser'],
    [{ NODE_OPTIONS: '--tls-keylog=/tmp/keys' }, '--tls-keylog'],
    [{ NODE_DEBUG: 'http,tls' }, 'NODE_DEBUG'],
    [{ NODE_DEBUG_NATIVE: 'tls' }, 'NODE_DEBUG_NATIVE'],
    [{ SSLKEYLOGFILE: '/tmp/keys' }, 'SSLKEYLOGFILE'],
  ])('%j', (env, expected) => {
    const warnings = withEnv(env as Record<string, string>)
    expect(warnings).toEqual([expect.stringContaining(expected)])
    expect(warnings.join()).not.toMatch(/\/tmp|9229/)
  })

  test('also where it stands on the command line', () => {
    expect(environmentWarnings({ ...QUIET, execArgv: ['--inspect=0'] })).toEqual([
      expect.stringContaining('--inspect:'),
    ])
  })
})

describe('proxies', () => {
  const env = { HTTPS_PROXY: 'http://me:hunter2@proxy.example.com', NODE_USE_ENV_PROXY: '1' }

  test('one that is set and ignored is told, without its password', () => {
    expect(withEnv(env)).toEqual([
      'HTTPS_PROXY is set and ignored: set origin.proxyFromEnv to true to honour it',
      'NODE_USE_ENV_PROXY is set and ignored: set origin.proxyFromEnv to true to honour it',
    ])
  })

  test('one that is honoured is not; one that is asked for and missing is', () => {
    expect(environmentWarnings({ ...QUIET, env, usesProxyFromEnv: true })).toEqual([])
    expect(environmentWarnings({ ...QUIET, usesProxyFromEnv: true })).toHaveLength(1)
    expect(withEnv({ HTTPS_PROXY: '' })).toEqual([])
  })
})

describe('the version of Node', () => {
  test.each([
    ['20.20.2', '2026-04-30', false],
    ['20.20.2', '2026-05-01', true],
    ['22.22.0', '2026-11-20', false],
    ['25.1.0', '2026-11-20', true],
    ['99.0.0', '2026-11-20', false],
  ])('%s on %s is past its end: %s', (nodeVersion, today, isPast) => {
    const warnings = environmentWarnings({ ...QUIET, nodeVersion, today: new Date(today) })
    expect(warnings).toHaveLength(isPast ? 1 : 0)
    for (const warning of warnings) expect(warning).toContain(nodeVersion)
  })
})
