/** `npm start` after its build: the built demo as a process. */

import { execFile, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { loadConfig } from '../../src/config/load.ts'
import { DEFAULT_APP_ID, startSandbox } from '../../src/sandbox/sandbox.ts'
import { DEFAULT_APP_SECRET } from '../../src/sandbox/switches.ts'
import { lacks } from '../support/programs.ts'
import { SpawnedProxy } from '../support/spawn-proxy.ts'

const DEMO = fileURLToPath(new URL('../../dist/sandbox/demo.js', import.meta.url))
const CONFIG_FILE = fileURLToPath(new URL('../../config/sandbox.yaml', import.meta.url))
const FREE_PORTS = { OAP_LISTEN_ADDRESS: 'localhost:0', OAP_ADMIN_ADDRESS: 'off', OAP_BASE_URL: 'http://127.0.0.1:0' }
const run = promisify(execFile)

function startDemo(env: Record<string, string>): SpawnedProxy {
  const { PATH = '', HOME = '' } = process.env
  const child = spawn(process.execPath, [DEMO], {
    env: { PATH, HOME, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    cwd: '/',
  })
  return new SpawnedProxy(child)
}

async function paste(line: string): Promise<string> {
  return (await run('sh', ['-c', `${line.trim()} --silent --show-error`])).stdout
}

test.skipIf(lacks('curl'))(
  'both curl lines work when pasted, follow the log, and a signal ends the demo with exit code 0',
  async () => {
    await using demo = startDemo(FREE_PORTS)
    await demo.waitForLine(/Ctrl-C/)
    for (const org of ['acme', 'globex']) {
      const answer = await paste(await demo.waitForLine(new RegExp(`curl .*${org}`)))
      expect(answer).toMatch(/^HTTP\/1\.1 200 /)
      expect(answer).toContain(`"org": "${org}"`)
    }
    expect(demo.stdout.filter((line) => line.includes('curl '))).toHaveLength(2)

    const firstOwnLine = demo.stdout.findIndex((line) => line.startsWith('  proxy'))
    const readyLine = demo.stdout.findIndex((line) => line.includes(' ready '))
    expect(readyLine).toBeGreaterThanOrEqual(0)
    expect(firstOwnLine).toBeGreaterThan(readyLine)
    expect(demo.output).not.toContain(DEFAULT_APP_SECRET)

    demo.signal('SIGTERM')
    expect(await demo.exited).toEqual({ code: 0, signal: null })
  },
)

test.skipIf(lacks('curl'))('a base path moves the sandbox with the proxy', async () => {
  await using demo = startDemo({ ...FREE_PORTS, OAP_BASE_URL: 'http://127.0.0.1:0/api/' })
  expect(await paste(await demo.waitForLine(/curl .*acme/))).toMatch(/^HTTP\/1\.1 200 /)
})

test.each([
  ['sandbox', (taken: string) => ({ OAP_BASE_URL: `http://${taken}` })],
  ['proxy', (taken: string) => ({ OAP_LISTEN_ADDRESS: taken })],
])('a taken port of the %s ends it with exit code 1 and the remedy', async (_, settingsFor) => {
  await using holder = await startSandbox()
  const { host } = new URL(holder.baseUrl)
  await using demo = startDemo({ ...FREE_PORTS, ...settingsFor(host) })
  expect((await demo.exited).code).toBe(1)
  expect(demo.stderr).toEqual([
    `org-access-proxy: ${host} is in use: stop the program that listens there, or choose another address`,
    expect.stringMatching(/^With free ports: OAP_\S+ OAP_\S+ OAP_\S+ npm start$/),
  ])
})

test.each([
  ['a service elsewhere', { OAP_BASE_URL: 'https://api.example.com' }, 1, /npm start runs its own service/],
  ['a setting that is wrong', { OAP_TOKENS_LIFETIME: '5' }, 78, /^tokens\.lifetime /],
])('%s is refused in one line', async (_, env, code, message) => {
  await using demo = startDemo({ ...FREE_PORTS, ...env })
  expect((await demo.exited).code).toBe(code)
  expect(demo.stderr).toEqual([expect.stringMatching(message)])
})

test('config/sandbox.yaml fits a sandbox that is started alone', async () => {
  const { config } = await loadConfig({ file: CONFIG_FILE, env: {} })
  expect(config.baseUrl.href).toBe('http://127.0.0.1:9080/')
  expect(config.appId).toBe(DEFAULT_APP_ID)
  expect(config.appSecret.reveal()).toBe(DEFAULT_APP_SECRET)
})
