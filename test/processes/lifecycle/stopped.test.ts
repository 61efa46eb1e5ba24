/**
 * The attack: the service writes a second response on an idle connection while the process does not run. When it runs again,
 * the request of another org is ready at the same moment. Written to that connection, it would get the stranger's response.
 */

import { existsSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { startProxyProcess } from '../../support/proxy-process.ts'
import { RawClient, request } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'

test.each([
  ['a second response', 'GET', 'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nstranger'],
  ['the end of the connection', 'POST', ''],
])('a process that was stopped sees %s before it writes a request', async (_, method, surplus) => {
  await using service = await startService({
    script: (seen) => ({ content: service.orgOf(seen) ?? '' }),
  })
  await using proxy = await startProxyProcess(service, { settings: { 'origin.keepAliveTimeout': '1h' } })
  await request(proxy.port, get('/v2/x', 'victim')) // the token is cached
  await request(proxy.port, get('/v2/x', 'stranger'))
  const idle = service.requests.at(-1)?.connection
  await using victim = await RawClient.connect(proxy.port)
  victim.send(get('/v2/x', 'victim'))
  await victim.response()
  proxy.spawned.signal('SIGSTOP')
  victim.send(get('/v2/x', 'victim').replace('GET', method))
  if (surplus === '') idle?.end()
  else idle?.write(surplus)
  await sleep(50) // nothing tells when the kernel has delivered both
  proxy.spawned.signal('SIGCONT')
  const { status, content } = await victim.response()
  expect([status, content.toString()]).toEqual([200, 'victim'])
})

const LIMIT_FILE = '/proc/sys/net/core/somaxconn'
const SOMAXCONN = existsSync(LIMIT_FILE) ? Number(readFileSync(LIMIT_FILE, 'utf8')) : 0

test.skipIf(SOMAXCONN < 2_000)('connections that come while the process does not run wait for it', async () => {
  await using service = await startService()
  await using proxy = await startProxyProcess(service)
  await request(proxy.port, get('/v2/x', 'acme'))
  proxy.spawned.signal('SIGSTOP')
  const clients = await Promise.all(Array.from({ length: 1_000 }, () => RawClient.connect(proxy.port)))
  for (const client of clients) client.send(get('/v2/x', 'acme'))
  proxy.spawned.signal('SIGCONT')
  for (const client of clients) {
    expect((await client.response()).status).toBe(200)
    await client[Symbol.asyncDispose]()
  }
})
