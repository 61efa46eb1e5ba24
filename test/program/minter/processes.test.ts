/** Six sidecars as processes: the secret is in none of them, one mint serves all, and they outlive their minter. */

import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { eventually } from '../../support/changes.ts'
import { type Folder, makeFolder } from '../../support/folder.ts'
import { freePort } from '../../support/listening.ts'
import { type OrgEcho, startOrgEcho } from '../../support/org-echo.ts'
import { outcomeOf, request } from '../../support/raw-client.ts'
import { type SpawnedProxy, START_ARGS, spawnProxy } from '../../support/spawn-proxy.ts'

const SIDECARS = 6
const SECRET = 'a-secret-to-look-for-0e5b1c'
const NEXT_SECRET = 'the-next-secret-to-look-for-77d2'

interface Sidecar {
  readonly process: SpawnedProxy
  readonly port: number
}

let service: OrgEcho
let folder: Folder
let minter: SpawnedProxy
let minterPort: number
const sidecars: Sidecar[] = []

async function startMinter(): Promise<SpawnedProxy> {
  const started = spawnProxy({ args: ['--config', folder.at('minter.yaml')] })
  await started.waitForLine(/"msg":"ready"/)
  return started
}

const environmentOf = (index: number) => ({
  OAP_BASE_URL: service.baseUrl,
  OAP_LISTEN_ADDRESS: '127.0.0.1:0',
  OAP_ADMIN_ADDRESS: '127.0.0.1:0',
  OAP_MINTER_URL: `http://127.0.0.1:${minterPort}`,
  OAP_MINTER_KEY_FILE: folder.at(`${index}.key`),
  OAP_TOKENS_SETTLE_TIME: '0s',
})

async function startSidecar(index: number): Promise<Sidecar> {
  const started = spawnProxy({ env: environmentOf(index) })
  return { process: started, port: (await started.ready(120_000)).port }
}

const ask = async ({ port }: Sidecar, org: string) =>
  outcomeOf(await request(port, `GET /v2/as/${org} HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: ${org}\r\n\r\n`))

beforeAll(async () => {
  service = await startOrgEcho({ appSecret: SECRET, mintLatencyMs: 300 })
  folder = await makeFolder()
  minterPort = await freePort()
  const callers = await Promise.all(
    Array.from({ length: SIDECARS }, async (_, index) => {
      await folder.write(`${index}.key`, `the-key-of-sidecar-${index}`)
      return `  - {name: sidecar-${index}, keyFiles: [${index}.key], tokens: true, orgs: [shared, own-${index}]}`
    }),
  )
  await folder.write('secret', SECRET)
  const settings = [
    `appId: ${service.appId}`,
    'appSecretFile: secret',
    `baseUrl: ${service.baseUrl}`,
    'listen: {address: off}',
    'admin: {address: off}',
    `minter: {address: "127.0.0.1:${minterPort}"}`,
    'tokens: {rejectedCooldown: 10ms}', // the tests revoke tokens more often than a service does
    'callers:',
    ...callers,
  ]
  await folder.write('minter.yaml', settings.join('\n'))
  // Before the minter: the start of a sidecar does not wait for it.
  sidecars.push(...(await Promise.all(Array.from({ length: SIDECARS }, (_, index) => startSidecar(index)))))
  minter = await startMinter()
}, 240_000)

afterAll(async () => {
  await Promise.all(sidecars.map(({ process }) => process[Symbol.asyncDispose]()))
  await minter[Symbol.asyncDispose]()
  await service[Symbol.asyncDispose]()
  await folder[Symbol.asyncDispose]()
})

/** The secrets as a process may hold them: in one byte a character or two, and as the API key. */
const needles = () =>
  [SECRET, NEXT_SECRET].flatMap((secret) => [
    Buffer.from(secret),
    Buffer.from(secret, 'utf16le'),
    Buffer.from(Buffer.from(`${service.appId}:${secret}`).toString('base64')),
  ])

const holdsSecret = (bytes: Buffer): boolean => needles().some((needle) => bytes.includes(needle))

const OVERLAP = 256

/** Everything that the process may read and write, piece by piece. The pieces overlap. */
async function* memoryOf({ pid }: SpawnedProxy): AsyncGenerator<Buffer> {
  await using memory = await open(`/proc/${pid}/mem`)
  const buffer = Buffer.alloc(4 * 1024 * 1024)
  for (const line of readFileSync(`/proc/${pid}/maps`, 'latin1').split('\n')) {
    const [, from = '', to = '', name = ''] = /^([\da-f]+)-([\da-f]+) rw.{2} \S+ \S+ \d+ *(.*)$/.exec(line) ?? []
    if (from === '' || name.startsWith('[v')) continue
    const end = Number(`0x${to}`)
    for (let at = Number(`0x${from}`); at < end; at += buffer.length - OVERLAP) {
      const length = Math.min(end - at, buffer.length)
      const { bytesRead } = await memory.read(buffer, 0, length, at).catch(() => ({ bytesRead: 0 }))
      if (bytesRead > 0) yield buffer.subarray(0, bytesRead)
    }
  }
}

async function isInMemory(process: SpawnedProxy): Promise<boolean> {
  for await (const piece of memoryOf(process)) if (holdsSecret(piece)) return true
  return false
}

test('six cold sidecars that need a token for one Org at once cost one mint', async () => {
  const mintsBefore = service.stats().totals.mints
  expect(await Promise.all(sidecars.map((sidecar) => ask(sidecar, 'shared')))).toEqual(sidecars.map(() => 200))
  expect(service.stats().totals.mints - mintsBefore).toBe(1)
})

test('each serves its own Org, and none that of another', async () => {
  const outcomes = await Promise.all(
    sidecars.map(async (sidecar, index) => [
      await ask(sidecar, `own-${index}`),
      await ask(sidecar, `own-${(index + 1) % SIDECARS}`),
    ]),
  )
  expect(outcomes).toEqual(sidecars.map(() => [200, 'org_not_allowed']))
  expect(service.mismatches).toEqual([])
})

test('a token that was rejected is replaced once for all of them', async () => {
  const mintsBefore = service.stats().totals.mints
  service.revoke('shared')
  expect(await Promise.all(sidecars.map((sidecar) => ask(sidecar, 'shared')))).toEqual(sidecars.map(() => 200))
  expect(service.stats().totals.mints - mintsBefore).toBe(1)
})

test('a rotation of the secret concerns the minter alone', async () => {
  service.set({ appSecret: [SECRET, NEXT_SECRET] })
  await folder.write('secret', NEXT_SECRET)
  minter.signal('SIGHUP')
  await minter.waitForLine(/new secret loaded/)
  service.set({ appSecret: NEXT_SECRET })
  service.revoke('*')
  expect(await Promise.all(sidecars.map((sidecar) => ask(sidecar, 'shared')))).toEqual(sidecars.map(() => 200))
  await minter.waitForLine(/new secret accepted/)
})

test('the secret is in no memory, environment, argument, open file or log of a sidecar', {
  timeout: 300_000,
}, async () => {
  expect(await isInMemory(minter), 'what is searched for is found in the minter').toBe(true)
  for (const { process } of sidecars) {
    expect(await isInMemory(process)).toBe(false)
    const { pid } = process
    const files = readdirSync(`/proc/${pid}/fd`)
      .map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`))
      .filter((path) => path.startsWith('/') && statSync(path, { throwIfNoEntry: false })?.isFile() === true)
    for (const path of [`/proc/${pid}/environ`, `/proc/${pid}/cmdline`, ...files])
      expect(holdsSecret(readFileSync(path)), path).toBe(false)
    expect(holdsSecret(Buffer.from(process.output)), 'the log').toBe(false)
  }
})

/** Otherwise another program gets the cores of this machine. */
const writesCores = readFileSync('/proc/sys/kernel/core_pattern', 'latin1').trim() === 'core'

test.skipIf(!writesCores)('the secret is in no core of a sidecar', async () => {
  const place = await makeFolder()
  try {
    const script = `cd ${place.path} && ulimit -c unlimited && exec "$@"`
    const { MAIN } = await import('../../support/spawn-proxy.ts')
    const { spawn } = await import('node:child_process')
    const env = { PATH: process.env['PATH'] ?? '', ...environmentOf(0) }
    const child = spawn('sh', ['-c', script, 'sh', process.execPath, ...START_ARGS, MAIN], { env, stdio: 'pipe' })
    let output = ''
    child.stdout.on('data', (text) => (output += text))
    const [, port = ''] = await eventually(
      () => /"address":"127.0.0.1:(\d+)".*"msg":"ready"/.exec(output) ?? undefined,
      'ready',
    )
    expect(await ask({ port: Number(port) } as Sidecar, 'shared')).toBe(200)
    child.kill('SIGABRT')
    await new Promise((resolve) => child.once('close', resolve))
    const [name = 'no core'] = readdirSync(place.path).filter((file) => file.startsWith('core'))
    const count = (text: string) => {
      try {
        return Number(execFileSync('grep', ['-c', '-a', '-F', text, join(place.path, name)], { encoding: 'latin1' }))
      } catch {
        return 0 // grep found none
      }
    }
    expect(count('the-key-of-sidecar-0'), 'what is in its memory is in its core').toBeGreaterThan(0)
    for (const text of [SECRET, NEXT_SECRET, Buffer.from(`${service.appId}:${NEXT_SECRET}`).toString('base64')])
      expect(count(text)).toBe(0)
  } finally {
    await place[Symbol.asyncDispose]()
  }
})

test('without the minter, they go on with the tokens that they hold; when it is back, it is used within five seconds', async () => {
  minter.signal('SIGKILL')
  await minter.exited
  const [first, second] = sidecars as [Sidecar, Sidecar]
  expect(await Promise.all(sidecars.map((sidecar) => ask(sidecar, 'shared')))).toEqual(sidecars.map(() => 200))
  const raw = 'GET /v2/x HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: own-0\r\n\r\n'
  service.revoke('own-0')
  service.revoke('own-1')
  const answer = await request(first.port, raw, { deadlineMs: 10_000 })
  expect(outcomeOf(answer)).toBe('token_endpoint_unavailable')
  expect(answer.content.toString()).toContain(`The minter at http://127.0.0.1:${minterPort} cannot be reached`)
  expect(await ask(second, 'shared')).toBe(200)
  minter = await startMinter()
  const backAt = performance.now()
  await eventually(
    async () => ((await ask(first, 'own-0')) === 200 ? true : undefined),
    'the token of a minter that is back',
  )
  expect(performance.now() - backAt).toBeLessThan(5_000)
})
