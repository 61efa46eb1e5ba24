/** One org's trouble is its own: however an org fails, no healthy org is refused, and the pod stays in its Service. */

import { execFileSync } from 'node:child_process'
import { unlink, writeFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { randomSecret } from '../../support/canaries.ts'
import { eventually } from '../../support/changes.ts'
import { type Answer, KeepAliveClient } from '../../support/keep-alive-client.ts'
import { scaled } from '../../support/pace.ts'
import { startService } from '../../support/service.ts'
import { type ProxyUnderTest, startProxy } from '../../support/start-proxy.ts'
import type { MintScript } from '../../support/token-endpoint.ts'

const HEALTHY = 30

async function isReady(proxy: ProxyUnderTest): Promise<boolean> {
  return (await fetch(`http://127.0.0.1:${proxy.adminPort}/readyz`)).status === 200
}

/** The failing orgs ask again and again. Meanwhile, healthy orgs that are new ask one after the other. */
async function besideSickOrgs(proxy: ProxyUnderTest, sickOrgs: number): Promise<Answer[]> {
  let isOver = false
  const sick = Array.from({ length: sickOrgs }, async (_, i) => {
    using client = new KeepAliveClient(proxy.port)
    while (!isOver) {
      expect((await client.get('/v2/x', `sick-${i}`)).status).toBeGreaterThanOrEqual(400)
      await new Promise((resolve) => setTimeout(resolve, 25))
    }
  })
  using client = new KeepAliveClient(proxy.port)
  const answers: Answer[] = []
  for (let i = 0; i < HEALTHY; i++) {
    answers.push(await client.get('/v2/x', `healthy-${i}`))
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  isOver = true
  await Promise.all(sick)
  return answers
}

const settings = { 'admin.address': 'localhost:0', 'tokens.mintRate': '1000' } as const

test.concurrent.each<[string, MintScript]>([
  ['401', () => ({ status: 401 })],
  ['404', () => ({ status: 404 })],
  ['429', () => ({ status: 429, fields: ['Retry-After', '3600'] })],
  ['500', () => ({ status: 500 })],
])('two orgs are answered %s from the start: every healthy org is served, and the proxy is ready', async (_, sick) => {
  await using service = await startService({
    mint: (mint) => (mint.org.startsWith('sick') ? sick(mint) : mint.issue()),
  })
  await using proxy = await startProxy(service, settings)
  const answers = await besideSickOrgs(proxy, 2)
  expect(answers.filter((answer) => answer.status !== 200).length).toBe(0)
  expect(await isReady(proxy)).toBe(true)
})

// They hold all places until their calls end, after four fifths of the time, and half of the places from then on.
test.concurrent('forty orgs hang: every healthy org is served', async () => {
  await using service = await startService({
    mint: (mint) => (mint.org.startsWith('sick') ? undefined : mint.issue()),
  })
  await using proxy = await startProxy(service, { ...settings, 'tokens.mintTimeout': '5s' })
  const answers = await besideSickOrgs(proxy, 40)
  expect(answers.filter((answer) => answer.status !== 200).map((answer) => answer.content)).toEqual([])
  expect(answers.filter((answer) => answer.durationMs > scaled(1_000)).length).toBeLessThanOrEqual(1)
})

// The secret file becomes a FIFO, like a stalled mount. The read after a 401 must not delay the mints of others.
test.concurrent('a 401 while the secret file cannot be read fails only its own mint', async () => {
  await using service = await startService({
    mint: (mint) => (mint.org === 'sick' ? { status: 401 } : mint.issue()),
  })
  await using proxy = await startProxy(service, settings)
  await unlink(proxy.secretFile)
  execFileSync('mkfifo', [proxy.secretFile])
  using client = new KeepAliveClient(proxy.port)
  expect((await client.get('/v2/x', 'sick')).status).toBe(502)
  for (let i = 0; i < 20; i++) expect((await client.get('/v2/x', `org-${i}`)).status).toBe(200)

  await unlink(proxy.secretFile)
  const fresh = randomSecret()
  await writeFile(proxy.secretFile, fresh)
  await eventually(() => proxy.output.includes('new secret loaded') || undefined, 'the next secret read', 10_000)
  // The service rejects this secret. The one before it serves, and no request notices.
  for (let i = 20; i < 30; i++) expect((await client.get('/v2/x', `org-${i}`)).status).toBe(200)
  expect(proxy.output).toContain('new secret rejected by the token endpoint')
})
