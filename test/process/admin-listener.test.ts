/** The settings of the admin listener, in the whole program. */

import { statSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { loadConfig } from '../../src/config/load.ts'
import { get } from '../support/case-table.ts'
import { problemOf, request } from '../support/raw-client.ts'
import { type Service, startService } from '../support/service.ts'
import { environmentOf, startProxy } from '../support/start-proxy.ts'

let service: Service
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service[Symbol.asyncDispose]())

const from = (host: string, path: string) => get(path, 'acme').replace('Host: localhost', `Host: ${host}`)

describe('an address that other machines can reach', () => {
  const ANYWHERE = { 'admin.address': '0.0.0.0:0' }

  test('answers health and metrics to any Host, and the rest to this machine under its own names', async () => {
    await using proxy = await startProxy(service, ANYWHERE)
    for (const path of ['/livez', '/readyz', '/metrics']) {
      expect((await request(proxy.adminPort, from('10.0.0.1', path))).status).toBe(200)
    }
    for (const path of ['/', '/status']) {
      expect((await request(proxy.adminPort, from('localhost', path))).status).toBe(200)
      expect((await request(proxy.adminPort, from('10.0.0.1', path))).status).toBe(421)
    }
  })

  test('admin.allowRemote opens the rest, under the names of listen.hosts', async () => {
    const settings = { ...ANYWHERE, 'admin.allowRemote': 'true', 'listen.hosts': 'proxy.internal' }
    await using proxy = await startProxy(service, settings)
    for (const path of ['/', '/status']) {
      expect((await request(proxy.adminPort, from('proxy.internal', path))).status).toBe(200)
      const foreign = await request(proxy.adminPort, from('other.internal', path))
      expect([foreign.status, problemOf(foreign).code]).toEqual([421, 'host_refused'])
    }
  })
})

test('listen.socketMode is also the mode of its unix socket, whatever the umask', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'oap-admin-'))
  const before = process.umask(0o027)
  try {
    for (const mode of ['0600', '0666']) {
      const path = join(folder, `admin-${mode}.sock`)
      await using _ = await startProxy(service, { 'admin.address': `unix:${path}`, 'listen.socketMode': mode })
      expect((statSync(path).mode & 0o777).toString(8)).toBe(mode.slice(1))
      expect((await request(path, get('/livez', 'acme'))).status).toBe(200)
    }
  } finally {
    process.umask(before)
    await rm(folder, { recursive: true })
  }
})

// A caller could read the orgs and rules of all others, and purge their tokens in a loop.
test('with callers, it serves orgs and purges on a unix socket only', async () => {
  const files = {
    'proxy.yaml': 'callers: [{name: batch, keyFiles: [batch.key], orgs: [acme]}]',
    'batch.key': 'a-key-of-batch-0123456789',
  }
  const purge = get('/tokens/purge?org=all', 'acme').replace('GET', 'POST')
  await using open = await startProxy(service, { 'admin.address': 'localhost:0' }, files)
  expect((await request(open.adminPort, get('/metrics', 'acme'))).status).toBe(200)
  for (const raw of [get('/status', 'acme'), purge]) {
    expect(problemOf(await request(open.adminPort, raw)).code).toBe('callers_refused')
  }
  const loaded = await loadConfig({ file: open.at('proxy.yaml'), env: environmentOf(open.settings) })
  expect(loaded.warnings.join()).toContain('admin.address (OAP_ADMIN_ADDRESS): serves health and metrics only')
  const folder = await mkdtemp(join(tmpdir(), 'oap-admin-'))
  const path = join(folder, 'admin.sock')
  await using _ = await startProxy(service, { 'admin.address': `unix:${path}` }, files)
  for (const raw of [get('/status', 'acme'), purge]) expect((await request(path, raw)).status).toBe(200)
  await rm(folder, { recursive: true })
})
