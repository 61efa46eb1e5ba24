/** Several instances in one process: each serves its own service, and only the start and the stop are common. */

import { spawn } from 'node:child_process'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { eventually, Gate } from '../../support/changes.ts'
import { type Folder, makeFolder } from '../../support/folder.ts'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { freePort, listening } from '../../support/listening.ts'
import { RawClient, request } from '../../support/raw-client.ts'
import { type Service, type ServiceOptions, startService } from '../../support/service.ts'
import { MAIN, SpawnedProxy, spawnProxy } from '../../support/spawn-proxy.ts'

const NAMES = ['github', 'entra']

interface Instance {
  readonly service: Service
  readonly port: number
  readonly adminPort: number
  write(more?: string): Promise<string>
}

async function makeInstance(folder: Folder, name: string, options?: ServiceOptions): Promise<Instance> {
  const service = await startService(options)
  onTestFinished(() => service[Symbol.asyncDispose]())
  const [port, adminPort] = [await freePort(), await freePort()]
  const secret = await folder.write(`${name}.secret`, service.appSecret)
  const write = (more = '') =>
    folder.write(
      `${name}.yaml`,
      `appId: ${service.appId}\nappSecretFile: ${secret}\nbaseUrl: ${service.baseUrl}
listen: { address: '127.0.0.1:${port}' }\nadmin: { address: '127.0.0.1:${adminPort}', quit: true }\n${more}`,
    )
  await write()
  return { service, port, adminPort, write }
}

async function makeBoth(options: ServiceOptions = {}) {
  const folder = await makeFolder()
  onTestFinished(() => folder[Symbol.asyncDispose]())
  const one = await makeInstance(folder, 'github', options)
  const other = await makeInstance(folder, 'entra')
  return { folder, one, other, args: ['serve', ...NAMES.flatMap((name) => ['--config', folder.at(`${name}.yaml`)])] }
}

async function startBoth(options: ServiceOptions = {}) {
  const made = await makeBoth(options)
  const proxy = spawnProxy({ args: made.args })
  onTestFinished(() => proxy[Symbol.asyncDispose]())
  for (const name of NAMES) await proxy.waitForLine(new RegExp(`"instance":"${name}".*"msg":"ready"`))
  const linesOf = (message: string) =>
    proxy.logs.filter(({ msg }) => msg === message).map(({ instance }) => String(instance))
  return { ...made, proxy, linesOf }
}

const bodyOf = async (port: number, path: string) => (await request(port, get(path, 'acme'))).content.toString()

test('each has its service, its tokens and its metrics, and each line of the log has its name', async () => {
  const { one, other, proxy } = await startBoth()
  for (const { port } of [one, other, other]) expect((await request(port, get('/v2/x', 'acme'))).status).toBe(200)
  // A service knows its own tokens only.
  for (const { service } of [one, other]) expect(service.requests.map((each) => service.orgOf(each))).toContain('acme')
  const counted = async ({ adminPort }: Instance) =>
    /^oap_requests_total\{.*\} (\d+)$/m.exec(await bodyOf(adminPort, '/metrics'))?.[1]
  expect([await counted(one), await counted(other)]).toEqual(['1', '2'])
  proxy.signal('SIGTERM')
  expect(await proxy.exited).toEqual({ code: 0, signal: null })
  expect(proxy.logs.filter(({ instance }) => !NAMES.includes(String(instance)))).toEqual([])
  expect(
    proxy.logs
      .filter(({ msg }) => msg === 'request')
      .map(({ instance }) => instance)
      .toSorted(),
  ).toEqual(['entra', 'entra', 'github'])
})

test('a reload takes over each file by itself', async () => {
  const { one, other, proxy, linesOf } = await startBoth()
  await one.write('log: { level: debug }\n')
  await proxy.waitForLine(/"instance":"github".*"msg":"configuration applied"/)
  expect([linesOf('configuration applied'), linesOf('configuration unchanged')]).toEqual([['github'], []])
  await one.write('bogus: 1\n')
  await other.write('log: { level: debug }\n')
  proxy.signal('SIGHUP')
  await proxy.waitForLine(/"instance":"entra".*"msg":"configuration applied"/)
  await proxy.waitForLine(/"instance":"github".*"problem":"bogus.*"msg":"configuration refused/)
  expect(linesOf('configuration applied')).toEqual(['github', 'entra'])
  for (const { port } of [one, other]) expect((await request(port, get('/v2/x', 'acme'))).status).toBe(200)
})

test.each(['SIGTERM', 'the command stop'])('%s ends all, with the worst exit code', async (ending) => {
  const gate = new Gate(30_000)
  const { folder, one, other, args } = await makeBoth({ script: () => gate.pass().then(() => undefined) })
  await one.write('shutdown: { timeout: 200ms }\n')
  await other.write('shutdown: { timeout: 20s }\n')
  await using proxy = spawnProxy({ args })
  for (const name of NAMES) await proxy.waitForLine(new RegExp(`"instance":"${name}".*"msg":"ready"`))
  const held = request(one.port, get('/held', 'acme')).catch(() => 'broken')
  await gate.untilWaiting(1)
  if (ending === 'SIGTERM') proxy.signal('SIGTERM')
  else {
    await using stopping = spawnProxy({ args: ['stop', '--config', join(folder.path, 'entra.yaml')] })
    expect((await stopping.exited).code).toBe(0)
  }
  expect(await proxy.exited).toEqual({ code: 1, signal: null })
  expect(await held).toBe('broken')
  const ends = proxy.logs.filter(({ msg }) => String(msg).startsWith('stopped'))
  expect(Object.fromEntries(ends.map(({ instance, msg }) => [instance, msg]))).toEqual({
    entra: 'stopped',
    github: expect.stringContaining('cut connections'),
  })
})

test('ports that are in use are all told, and nothing stays open', async () => {
  const { folder, one, other, args } = await makeBoth()
  const third = await makeInstance(folder, 'third')
  for (const { port } of [one, other]) {
    const taken = await listening(createServer(), '127.0.0.1', port)
    onTestFinished(() => taken[Symbol.asyncDispose]())
  }
  await using proxy = spawnProxy({ args: [...args, '-c', folder.at('third.yaml')] })
  expect(await proxy.exited).toEqual({ code: 1, signal: null })
  expect(proxy.stderr).toHaveLength(2)
  for (const { port } of [one, other])
    expect(proxy.output).toContain(`EADDRINUSE: address already in use 127.0.0.1:${port}`)
  await expect(request(third.port, get('/v2/x', 'acme'))).rejects.toThrow()
})

test('a problem in one refuses all', async () => {
  const { one, args } = await makeBoth()
  await one.write('bogus: 1\n')
  await using proxy = spawnProxy({ args, env: { OAP_TOKENS_MAX_ORGS: '3' } })
  expect(await proxy.exited).toEqual({ code: 78, signal: null })
  expect([proxy.stdout, proxy.stderr]).toEqual([
    [],
    [expect.stringMatching(/^OAP_TOKENS/), expect.stringMatching(/^bogus/)],
  ])
})

test('each has its share of the file descriptors', async () => {
  const { one, other, args } = await makeBoth()
  const child = spawn('/bin/sh', ['-c', 'ulimit -n 200; exec "$@"', 'sh', process.execPath, MAIN, ...args], { env: {} })
  await using proxy = new SpawnedProxy(child)
  for (const name of NAMES) await proxy.waitForLine(new RegExp(`"instance":"${name}".*"msg":"ready"`))
  for (let i = 0; i < 40; i++) {
    const client = await RawClient.connect(one.port)
    onTestFinished(() => client[Symbol.asyncDispose]())
  }
  // Of 100, the process needs some, and half of the rest is for connections to the service.
  await proxy.waitForLine(/"instance":"github","connections":30,"limit":"the limit of open files/)
  expect((await request(other.port, get('/v2/x', 'acme'))).status).toBe(200)
})

test('check shows each', async () => {
  const { args } = await makeBoth()
  await using checking = spawnProxy({ args: ['check', ...args.slice(1)] })
  expect(await checking.exited).toEqual({ code: 0, signal: null })
  expect(checking.stdout.filter((line) => /^---|can be used|is good/.test(line))).toEqual([
    '--- github',
    'The configuration is good.',
    '--- entra',
    'The configuration is good.',
  ])
})

test('one whose lines nobody could write fast enough leaves the lines of the other whole', async () => {
  const { one, other, proxy } = await startBoth()
  const { stdout } = proxy.child
  stdout?.pause()
  using flood = new KeepAliveClient(one.port)
  const path = `/v2/${'p'.repeat(1_000)}`
  const isDropping = async () => {
    for (let i = 0; i < 500; i++) await flood.get(path, 'acme')
    one.service.origin.requests.length = 0
    return /^oap_log_lines_dropped_total 0$/m.test(await bodyOf(one.adminPort, '/metrics')) ? undefined : true
  }
  await eventually(isDropping, 'lines to be dropped')
  expect((await request(other.port, get('/v2/seen', 'acme'))).status).toBe(200)
  expect(await bodyOf(other.adminPort, '/metrics')).toMatch(/^oap_log_lines_dropped_total 0$/m)
  stdout?.resume()
  await proxy.waitForLine(/"instance":"entra".*"path":"\/v2\/seen"/)
  proxy.signal('SIGTERM')
  expect((await proxy.exited).code).toBe(0)
  expect(proxy.stdout.filter((line) => !line.startsWith('{"level"') || !line.endsWith('}'))).toEqual([])
})
