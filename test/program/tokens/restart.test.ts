/** Tokens end with their process: none is on the disk, and the next process mints anew. */

import { readdir, readFile, readlink } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { Canaries } from '../../support/canaries.ts'
import { eventually } from '../../support/changes.ts'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { startProxyProcess } from '../../support/proxy-process.ts'
import { startService } from '../../support/service.ts'

test('no file contains a token, and the next process starts without tokens', async () => {
  await using service = await startService()
  const identity = { ...service.tokens, appSecret: service.tokens.appSecret, baseUrl: service.baseUrl }
  for (const generation of [1, 2]) {
    await using proxy = await startProxyProcess(identity)
    using client = new KeepAliveClient(proxy.port)
    for (let i = 0; i < 3; i++) expect((await client.get('/v2/x', 'acme')).status).toBe(200)
    expect(service.tokens.mintsOf('acme')).toHaveLength(generation)

    // The process may read a file at any moment. A file with tokens would stay open.
    await eventually(async () => {
      const open = await filesHeldOpen(proxy.spawned.pid)
      return open.every((path) => !path.startsWith('/') || path.startsWith('/dev/')) || undefined
    }, 'no file held open')
    const canaries = new Canaries().add('token', service.tokens.marker)
    for (const name of await readdir(proxy.folder)) {
      expect(canaries.search(await readFile(join(proxy.folder, name)))).toEqual([])
    }
    proxy.spawned.signal('SIGTERM')
    expect((await proxy.spawned.exited).code).toBe(0)
  }
})

async function filesHeldOpen(pid: number): Promise<string[]> {
  const folder = `/proc/${pid}/fd`
  const links = (await readdir(folder)).map((name) => readlink(join(folder, name)).catch(() => ''))
  return Promise.all(links)
}
