/** `org-access-proxy sandbox`, and `npm start` after its build: the built programs as processes. */

import { execFile, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { loadConfig } from '../../../src/config/load.ts'
import { DEFAULT_APP_ID, startSandbox } from '../../../src/sandbox/sandbox.ts'
import { DEFAULT_APP_SECRET } from '../../../src/sandbox/switches.ts'
import { makeFolder } from '../../support/folder.ts'
import { lacks } from '../../support/programs.ts'
import { readProjectFile } from '../../support/project-files.ts'
import { SpawnedProxy, spawnProxy } from '../../support/spawn-proxy.ts'
import { basic } from '../../units/sandbox/client.ts'

const DEMO = fileURLToPath(new URL('../../../dist/sandbox/demo.js', import.meta.url))
const CONFIG_FILE = fileURLToPath(new URL('../../../config/sandbox.yaml', import.meta.url))
const FREE_PORTS = { OAP_LISTEN_ADDRESS: 'localhost:0', OAP_ADMIN_ADDRESS: 'off', OAP_BASE_URL: 'http://127.0.0.1:0' }
const run = promisify(execFile)

function inUse(host: string): string {
  return `org-access-proxy: listen EADDRINUSE: address already in use ${host}: stop the program that listens there, or choose another address`
}

async function paste(line: string): Promise<string> {
  return (await run('sh', ['-c', `${line.trim()} --silent --show-error`])).stdout
}

describe('the sandbox alone', () => {
  const start = (env: Record<string, string> = {}, port = 0) =>
    spawnProxy({ args: ['sandbox', '--port', `${port}`], env })

  test.skipIf(lacks('curl'))('its curl line for a token works when pasted, and a signal ends it', async () => {
    await using running = start()
    await running.waitForLine(/endpoint/)
    const lines = running.stdout.filter((line) => /^ *curl /.test(line) && !line.includes(':8080'))
    const answers: unknown[] = []
    for (const line of lines) answers.push(JSON.parse(await paste(line)))
    expect(answers).toMatchObject([{ orgAccessToken: expect.any(String) }])
    running.signal('SIGINT')
    expect(await running.exited).toEqual({ code: 0, signal: null })
  })

  test.each(['OAP_APP_SECRET', 'OAP_APP_SECRET_FILE'])(
    'it uses the App of the environment, and does not print its secret: %s',
    async (variable) => {
      await using folder = await makeFolder()
      const file = await folder.write('secret', 'a-secret-to-look-for\n')
      const secret = { [variable]: variable.endsWith('FILE') ? file : 'a-secret-to-look-for' }
      await using running = start({ OAP_APP_ID: 'my-app', ...secret })
      const baseUrl = /http\S+/.exec(await running.waitForLine(/^ {2}sandbox /))?.[0]
      const headers = { authorization: basic('my-app', 'a-secret-to-look-for') }
      expect((await fetch(`${baseUrl}/v2/orgs/acme/access`, { method: 'POST', headers })).status).toBe(200)
      expect(running.output).not.toContain('a-secret-to-look-for')
      running.signal('SIGTERM')
      expect(await running.exited).toEqual({ code: 0, signal: null })
    },
  )

  test('--like starts it as a service that was probed; its lines for the shell name the call', async () => {
    await using folder = await makeFolder()
    const switches = { tokenEndpoint: 'PUT /v2.1/t/{orgId}/new', tokenField: 'data.token', unlinkedStatus: 404 }
    const file = await folder.write('service.json', JSON.stringify({ program: '0', sandbox: switches }))
    await using running = spawnProxy({ args: ['sandbox', '--port', '0', '--like', file], env: {} })
    const baseUrl = /http\S+/.exec(await running.waitForLine(/^ {2}sandbox /))?.[0]
    await running.waitForLine(/-X PUT .*\/v2\.1\/t\/acme\/new/)
    const headers = { authorization: basic(DEFAULT_APP_ID, DEFAULT_APP_SECRET) }
    const ask = (org: string) => fetch(`${baseUrl}/v2.1/t/${org}/new`, { method: 'PUT', headers })
    expect(await (await ask('acme')).json()).toEqual({ data: { token: expect.any(String) } })
    expect((await ask('initech')).status).toBe(404)
    const wrong = await folder.write('wrong.json', '{"switches": {}}')
    await using refused = spawnProxy({ args: ['sandbox', '--like', wrong], env: {} })
    expect((await refused.exited).code).toBe(1)
    expect(refused.stderr).toEqual([`org-access-proxy: ${wrong} is no output of probe --json`])
  })

  test('a port in use is one clear line and exit code 1', async () => {
    await using holder = await startSandbox()
    const { host, port } = new URL(holder.baseUrl)
    await using taken = start({}, Number(port))
    expect((await taken.exited).code).toBe(1)
    expect(taken.stderr).toEqual([inUse(host)])
  })
})

describe('npm start', () => {
  function start(env: Record<string, string>): SpawnedProxy {
    const { PATH = '', HOME = '' } = process.env
    const child = spawn(process.execPath, [DEMO], {
      env: { PATH, HOME, ...FREE_PORTS, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
      cwd: '/',
    })
    return new SpawnedProxy(child)
  }

  test.skipIf(lacks('curl')).each(['', '/api/'])(
    'with the base path %j: both curl lines work when pasted, follow the log, and a signal ends it',
    async (basePath) => {
      await using demo = start({ OAP_BASE_URL: `${FREE_PORTS.OAP_BASE_URL}${basePath}` })
      await demo.waitForLine(/Ctrl-C/)
      for (const org of ['acme', 'globex']) {
        const answer = await paste(await demo.waitForLine(new RegExp(`curl .*${org}`)))
        expect(answer).toMatch(/^HTTP\/1\.1 200 /)
        expect(answer).toContain(`"org": "${org}"`)
      }
      expect(demo.stdout.filter((line) => line.includes('curl '))).toHaveLength(2)
      const readyAt = demo.stdout.findIndex((line) => line.includes(' ready '))
      expect(readyAt).toBeGreaterThanOrEqual(0)
      expect(demo.stdout.findIndex((line) => line.startsWith('  proxy'))).toBeGreaterThan(readyAt)
      expect(demo.output).not.toContain(DEFAULT_APP_SECRET)
      demo.signal('SIGTERM')
      expect(await demo.exited).toEqual({ code: 0, signal: null })
    },
  )

  // npm runs the script in a shell, and sends the shell a signal that it gets.
  test('a signal to its shell ends it', async () => {
    const { scripts } = JSON.parse(readProjectFile('package.json'))
    const [, started = ''] = / && npm run -s build && (.*)$/.exec(scripts.start) ?? []
    const { PATH = '', HOME = '' } = process.env
    const env = { PATH, HOME, ...FREE_PORTS }
    const shell = spawn('sh', ['-c', `true && ${started}`], { env, stdio: ['ignore', 'pipe', 'pipe'] })
    await using demo = new SpawnedProxy(shell)
    await demo.waitForLine(/Ctrl-C/)
    demo.signal('SIGTERM')
    expect(await demo.exited).toEqual({ code: 0, signal: null })
    expect(demo.stdout.at(-1)).toContain('stopped')
  })

  test.each([
    ['sandbox', (taken: string) => ({ OAP_BASE_URL: `http://${taken}` })],
    ['proxy', (taken: string) => ({ OAP_LISTEN_ADDRESS: taken })],
  ])('a taken port of the %s ends it with exit code 1 and the remedy', async (_, settingsFor) => {
    await using holder = await startSandbox()
    const { host } = new URL(holder.baseUrl)
    await using demo = start(settingsFor(host))
    expect((await demo.exited).code).toBe(1)
    expect(demo.stderr).toEqual([inUse(host), expect.stringMatching(/^With free ports: (?:OAP_\S+ ){3}npm start$/)])
  })

  test.each([
    ['a service elsewhere', { OAP_BASE_URL: 'https://api.example.com' }, 1, /npm start runs its own service/],
    ['a setting that is wrong', { OAP_TOKENS_LIFETIME: '5' }, 78, /^tokens\.lifetime /],
  ])('%s is refused in one line', async (_, env, code, message) => {
    await using demo = start(env)
    expect((await demo.exited).code).toBe(code)
    expect(demo.stderr).toEqual([expect.stringMatching(message)])
  })

  test('its configuration fits a sandbox that is started alone', async () => {
    const { config } = await loadConfig({ file: CONFIG_FILE, env: {} })
    expect(config.baseUrl.href).toBe('http://127.0.0.1:9080/')
    expect(config.appId).toBe(DEFAULT_APP_ID)
    expect(config.app?.appSecret.reveal()).toBe(DEFAULT_APP_SECRET)
  })
})
