import { describe, expect, test } from 'vitest'
import { environmentWarnings, type ProcessFacts } from '../../src/config/environment.ts'
import { loadConfig } from '../../src/config/load.ts'
import { makeFolder } from './folder.ts'
import { GOOD, refusalOf } from './refusal.ts'

const QUIET: ProcessFacts = {
  env: { PATH: '/bin', NODE_OPTIONS: '--max-old-space-size=200', NODE_ENV: 'production' },
  execArgv: ['--disable-sigusr1'],
  nodeVersion: '24.11.0',
  usesProxyFromEnv: false,
}

const withEnv = (env: Record<string, string>) => environmentWarnings({ ...QUIET, env })

test('a usual environment gets no warning', () => {
  expect(environmentWarnings(QUIET)).toEqual([])
})

describe('a variable or an option that weakens the protection gets a warning', () => {
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

  test('also on the command line', () => {
    expect(environmentWarnings({ ...QUIET, execArgv: ['--inspect=0'] })).toEqual([
      expect.stringContaining('--inspect:'),
    ])
  })
})

describe('proxies', () => {
  const env = { HTTPS_PROXY: 'http://me:hunter2@proxy.example.com', NODE_USE_ENV_PROXY: '1' }

  test('a proxy that is ignored gets a warning, without its password', () => {
    expect(withEnv(env)).toEqual([
      'HTTPS_PROXY is set and ignored: set origin.proxyFromEnv to true to use it',
      'NODE_USE_ENV_PROXY is set and ignored: set origin.proxyFromEnv to true to use it',
    ])
  })

  test('a proxy that is used gets no warning; origin.proxyFromEnv without one does', () => {
    expect(environmentWarnings({ ...QUIET, env, usesProxyFromEnv: true })).toEqual([])
    expect(environmentWarnings({ ...QUIET, usesProxyFromEnv: true })).toHaveLength(1)
    expect(withEnv({ HTTPS_PROXY: '' })).toEqual([])
  })
})

describe('the version of Node', () => {
  test.each([
    ['20.20.2', 'gets no security fixes any more: run Node 22 or newer'],
    ['27.0.0', 'is newer than 26, the newest version this release was tested with'],
  ])('%s gets a warning', (nodeVersion, warning) => {
    expect(environmentWarnings({ ...QUIET, nodeVersion })).toEqual([`Node ${nodeVersion} ${warning}`])
  })

  test.each(['22.22.0', '24.11.0', '26.1.0'])('%s gets none', (nodeVersion) => {
    expect(environmentWarnings({ ...QUIET, nodeVersion })).toEqual([])
  })
})

test('a removed setting tells what took its place: an error in the file, a warning in the environment', async () => {
  await using folder = await makeFolder()
  const file = await folder.write('proxy.yaml', 'listen: {origins: ["https://app.example.com"]}')
  const told = /is no longer a setting: remove it; the proxy refuses web pages/
  expect(await refusalOf({ file, env: GOOD })).toEqual([expect.stringMatching(told)])
  const { warnings } = await loadConfig({ env: { ...GOOD, OAP_LISTEN_ORIGINS: 'https://app.example.com' } })
  expect(warnings).toEqual(expect.arrayContaining([expect.stringMatching(/^OAP_LISTEN_ORIGINS is no longer/)]))
})
