/** The settings of the admin listener, in the whole program. */

import { statSync } from 'node:fs'
import { expect, onTestFinished, test } from 'vitest'
import { loadConfig } from '../../../src/config/load.ts'
import { get } from '../../support/case-table.ts'
import { problemOf, request } from '../../support/raw-client.ts'
import { serviceForFile } from '../../support/service-for-file.ts'
import { environmentOf, startProxy } from '../../support/start-proxy.ts'

const served = serviceForFile()
const ON_SOCKET = { 'admin.address': 'unix:$FOLDER/admin.sock' }
const from = (host: string, path: string) => get(path, 'acme').replace('Host: localhost', `Host: ${host}`)

test('an address that other machines can reach has health and metrics under any name, the rest with admin.allowRemote', async () => {
  const anywhere = { 'admin.address': '0.0.0.0:0', 'listen.hosts': 'proxy.internal' }
  for (const isOpen of [false, true]) {
    await using proxy = await startProxy(served.service, { ...anywhere, 'admin.allowRemote': `${isOpen}` })
    const statusOf = async (host: string, path: string) => (await request(proxy.adminPort, from(host, path))).status
    for (const path of ['/livez', '/healthz', '/readyz', '/metrics']) expect(await statusOf('10.0.0.1', path)).toBe(200)
    for (const path of ['/', '/status']) {
      expect(await statusOf('localhost', path)).toBe(200)
      expect(await statusOf('10.0.0.1', path)).toBe(421)
      if (isOpen) expect(await statusOf('proxy.internal', path)).toBe(200)
    }
  }
})

test('listen.socketMode is also the mode of its unix socket, whatever the umask', async () => {
  const before = process.umask(0o027)
  onTestFinished(() => void process.umask(before))
  for (const mode of ['0600', '0666']) {
    await using proxy = await startProxy(served.service, { ...ON_SOCKET, 'listen.socketMode': mode })
    expect((statSync(proxy.at('admin.sock')).mode & 0o777).toString(8)).toBe(mode.slice(1))
    expect((await proxy.askAdmin('/livez')).status).toBe(200)
  }
})

// A caller could read the orgs and rules of all others, and purge their tokens in a loop.
test('with callers, it serves orgs and purges on a unix socket only', async () => {
  const files = {
    'proxy.yaml': 'callers: [{name: batch, keyFiles: [batch.key], orgs: [acme]}]',
    'batch.key': 'a-key-of-batch-0123456789',
  }
  const purge = get('/tokens/purge?org=all', 'acme').replace('GET', 'POST')
  await using open = await startProxy(served.service, { 'admin.address': 'localhost:0' }, files)
  expect((await request(open.adminPort, get('/metrics', 'acme'))).status).toBe(200)
  for (const raw of [get('/status', 'acme'), purge]) {
    expect(problemOf(await request(open.adminPort, raw)).code).toBe('callers_refused')
  }
  const loaded = await loadConfig({ file: open.at('proxy.yaml'), env: environmentOf(open.settings) })
  expect(loaded.warnings.join()).toContain('admin.address (OAP_ADMIN_ADDRESS): serves health and metrics only')
  await using onSocket = await startProxy(served.service, ON_SOCKET, files)
  const path = onSocket.at('admin.sock')
  for (const raw of [get('/status', 'acme'), purge]) expect((await request(path, raw)).status).toBe(200)
})
