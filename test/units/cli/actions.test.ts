/** `purge`, `resume` and `reload` against the admin listener; `stop` is in test/processes/lifecycle/stop.test.ts. */

import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, test, vi } from 'vitest'
import { purge, reload, resume, stop } from '../../../src/cli/actions.ts'
import { AdminUnderTest } from '../admin/start-admin.ts'

type Command = (address: { kind: 'tcp'; host: string; port: number }, print: (text: string) => void) => Promise<number>

async function run(admin: AdminUnderTest, command: Command) {
  let printed = ''
  const exitCode = await command({ kind: 'tcp', host: 'localhost', port: admin.port }, (text) => (printed += text))
  return [exitCode, printed]
}

test('purge drops the token of one Org, or of all', async () => {
  await using admin = await AdminUnderTest.start()
  for (const org of ['acme', 'globex', 'a=b']) await admin.mint(org)
  expect(await run(admin, (at, print) => purge(at, 'a=b', print))).toEqual([0, 'dropped 1 token of "a=b"\n'])
  expect(await run(admin, (at, print) => purge(at, 'a=b', print))).toEqual([0, 'there was no token of "a=b"\n'])
  expect(await run(admin, (at, print) => purge(at, undefined, print))).toEqual([0, 'dropped 2 tokens\n'])
  await expect(run(admin, (at, print) => purge(at, 'a/b', print))).rejects.toThrow(
    'the admin listener answered 400: Send one id that matches orgs.pattern.',
  )
})

test('resume', async () => {
  await using admin = await AdminUnderTest.start()
  expect(await run(admin, resume)).toEqual([0, expect.stringContaining('are over')])
})

test('reload tells the outcome; a refused one has the exit code of a refused start', async () => {
  await using admin = await AdminUnderTest.start()
  expect(await run(admin, reload)).toEqual([0, 'configuration unchanged\n'])
  admin.reload = { outcome: 'applied', problems: [], needRestart: ['admin.quit'] }
  expect(await run(admin, reload)).toEqual([0, 'configuration applied\nthese changes need a restart: admin.quit\n'])
  admin.reload = { outcome: 'refused', problems: ['orgs.pattern (x): wrong'], needRestart: [] }
  expect(await run(admin, (at, print) => reload(at, undefined, print))).toEqual([
    78,
    'configuration refused, and the one before it stays in use:\norgs.pattern (x): wrong\n',
  ])
})

test('a reload may take its time', async () => {
  const server = createServer((_, response) => {
    vi.advanceTimersByTime(30_000)
    response.end('{"outcome":"applied","problems":[],"needRestart":[]}')
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  let printed = ''
  const address = { kind: 'tcp', host: 'localhost', port: (server.address() as AddressInfo).port } as const
  const exitCode = await reload(address, (text) => (printed += text)).finally(() => {
    vi.useRealTimers()
    server.close()
  })
  expect([exitCode, printed]).toEqual([0, 'configuration applied\n'])
})

test('stop says what to do where admin.quit is off', async () => {
  await using admin = await AdminUnderTest.start()
  await expect(run(admin, stop)).rejects.toThrow(
    `send SIGTERM to process ${process.pid} of its machine, or set admin.quit`,
  )
})
