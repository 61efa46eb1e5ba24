/** The files and examples for callers: the program accepts them, and they agree with each other. */

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { afterAll, describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { loadConfig } from '../../../src/config/load.ts'
import { folderForFile } from '../../support/folder.ts'
import { listening } from '../../support/listening.ts'
import { lacks, programPath } from '../../support/programs.ts'
import { projectPath, readProjectFile } from '../../support/project-files.ts'

describe('callers on one host', () => {
  test('each has its own directory, made by tmpfiles.d and writable for the unit', () => {
    const { callers }: { callers: { name: string; socket: string }[] } = parse(
      readProjectFile('deploy/systemd/callers.yaml'),
    )
    const lines = readProjectFile('deploy/systemd/callers.tmpfiles.conf')
      .split('\n')
      .map((line) => line.split(/\s+/))
    expect(readProjectFile('deploy/systemd/callers.service.conf')).toContain('ReadWritePaths=/run/oap\n')
    for (const { name, socket } of callers) {
      const folder = socket.slice(0, socket.lastIndexOf('/'))
      expect(lines).toContainEqual(['d', folder, '2750', 'org-access-proxy', name])
    }
  })

  test('the configuration is valid', async () => {
    const file = projectPath('deploy/systemd/callers.yaml')
    const env = {
      OAP_APP_ID: 'a',
      OAP_APP_SECRET: 'correct horse battery staple',
      OAP_BASE_URL: 'https://api.example.com',
    }
    expect((await loadConfig({ file, env })).config.callers.map(({ name }) => name)).toEqual(['billing', 'reports'])
  })
})

describe('the examples for callers', async () => {
  const example = (name: string) => readProjectFile(`examples/with-jwt/${name}`)
  const seen: (string | string[] | undefined)[][] = []
  const server = createServer(({ url, headers }, response) => {
    seen.push([url, headers['x-org-id'], headers['x-proxy-key']])
    response.end('ok')
  })
  const folder = await folderForFile()
  const { port, [Symbol.asyncDispose]: close } = await listening(server)
  afterAll(close)

  /** Runs a program that calls twice, and waits between the calls for a line on its input. */
  async function callTwice(command: string, args: readonly string[]): Promise<void> {
    seen.length = 0
    const PROXY_TOKEN_FILE = await folder.write('token', 'first\n')
    const env = { ...process.env, PROXY_URL: `http://127.0.0.1:${port}`, PROXY_TOKEN_FILE }
    const child = spawn(command, args, { cwd: folder.path, env, stdio: ['pipe', 'pipe', 'inherit'] })
    await once(child.stdout, 'data')
    await folder.write('token', 'second\n')
    child.stdin.end('go on\n')
    await once(child, 'exit')
    expect(seen).toEqual([
      ['/v2/x', 'acme', 'first'],
      ['/v2/x', 'acme', 'second'],
    ])
  }

  test('Node reads the token anew', async () => {
    const main = `
await callService('/v2/x', 'acme')
console.log('called')
process.stdin.once('data', async () => {
  await callService('/v2/x', 'acme')
  process.exit()
})`
    await folder.write('example.mjs', example('service.js') + main)
    await callTwice(process.execPath, ['example.mjs'])
  })

  test.skipIf(lacks('python3'))('Python reads the token anew', async () => {
    const main = `
call_service("/v2/x", "acme").read()
print("called", flush=True)
input()
call_service("/v2/x", "acme").read()
`
    await folder.write('example.py', example('service.py') + main)
    await callTwice(programPath('python3'), ['example.py'])
  })

  test.skipIf(lacks('go'))('Go compiles', async () => {
    await folder.write('go.mod', 'module service\n')
    await folder.write('service.go', example('service.go'))
    const { status, stderr } = spawnSync(programPath('go'), ['vet', '.'], { cwd: folder.path, encoding: 'utf8' })
    expect([status, stderr]).toEqual([0, ''])
  })

  test('the configuration has a valid shape', () => {
    const [, yaml = ''] = /```yaml\n([\s\S]*?)```/.exec(readProjectFile('docs/callers.md')) ?? []
    const { callers }: { callers: { name: string }[] } = parse(yaml)
    expect(callers.map(({ name }) => name)).toEqual(['billing', 'reports', 'batch'])
  })
})
