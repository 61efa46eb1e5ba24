/**
 * The App secret is replaced under a hundred requests a second, in every way in which a file is replaced or damaged: no
 * request fails, and the outcome of each content is logged once.
 */

import { writeFileSync } from 'node:fs'
import { mkdir, rename, rm, symlink, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { type Sandbox, startSandbox } from '../../../src/sandbox/sandbox.ts'
import { Canaries } from '../../support/canaries.ts'
import { eventually } from '../../support/changes.ts'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { type ProxyProcess, startProxyProcess } from '../../support/proxy-process.ts'

const ORGS = Array.from({ length: 20 }, (_, i) => `org-${i}`)
/** Far longer than the estimate: mints go on all the time, and no token gets too old, however slow the machine. */
const LIFETIME_MS = 30_000
const CONNECTIONS = 5
const SETTINGS = { 'tokens.lifetime': '1s' } as const

/** Requests without end: hits, refreshes and cold orgs. */
class Traffic implements AsyncDisposable {
  readonly failures: string[] = []
  answered = 0
  readonly #proxy: ProxyProcess
  readonly #done: Promise<unknown>
  #isOver = false
  #coldOrgs = 0

  constructor(proxy: ProxyProcess) {
    this.#proxy = proxy
    this.#done = Promise.all(Array.from({ length: CONNECTIONS }, (_, i) => this.#send(i)))
  }

  /** Resolves when this many more requests were answered. */
  async next(requests: number): Promise<void> {
    const until = this.answered + requests
    await eventually(() => this.answered >= until || undefined, `${requests} more answers`, 30_000)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isOver = true
    await this.#done
  }

  async #send(connection: number): Promise<void> {
    using client = new KeepAliveClient(this.#proxy.port)
    for (let i = connection; !this.#isOver; i++) {
      // Now and then a new org, whose mint uses the secret at once.
      const org = i % 50 === 49 ? `org-cold-${this.#coldOrgs++}` : ORGS[i % ORGS.length]
      try {
        const { status, content } = await client.get('/v2/example/endpoint', org ?? '')
        if (status !== 200) this.failures.push(`${org}: ${status} ${content}`)
      } catch (error) {
        this.failures.push(`${org}: ${error}`)
      }
      this.answered += 1
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
  }
}

/** Like the kubelet: makes a new directory with the content, and renames the symlink through which all files are reached. */
async function project(folder: string, version: number, content: string | Uint8Array): Promise<void> {
  const data = `..data-${version}`
  await mkdir(join(folder, data))
  await writeFile(join(folder, data, 'secret'), content, { mode: 0o600 })
  await symlink(data, join(folder, '..data_tmp'))
  await rename(join(folder, '..data_tmp'), join(folder, '..data'))
}

async function startProjected(sandbox: Sandbox): Promise<ProxyProcess> {
  return startProxyProcess(sandbox, {
    settings: SETTINGS,
    prepare: async (folder) => {
      await project(folder, 1, sandbox.appSecret)
      await rm(join(folder, 'secret'))
      await symlink(join('..data', 'secret'), join(folder, 'secret'))
    },
  })
}

function count(proxy: ProxyProcess, message: string): number {
  return proxy.spawned.logs.filter(({ msg }) => msg === message).length
}

const ACCEPTED = 'new secret accepted by the token endpoint'
const REJECTED = 'new secret rejected by the token endpoint: correct the file; the secret before it is used'
const UNUSABLE = 'secret file not usable: the old secret stays in use'

test.concurrent('a directory replaced like in Kubernetes, twice; then the service rejects the old secret', async () => {
  await using sandbox = await startSandbox({ tokenLifetimeMs: LIFETIME_MS })
  await using proxy = await startProjected(sandbox)
  const { appSecret: first } = sandbox
  {
    await using traffic = new Traffic(proxy)
    await traffic.next(100)
    for (const [version, secret] of [
      [2, 'second-secret'],
      [3, 'third-secret'],
    ] as const) {
      sandbox.set({ appSecret: [sandbox.appSecret, secret] })
      await project(proxy.folder, version, secret)
      await eventually(() => count(proxy, ACCEPTED) === version - 1 || undefined, 'the secret in use')
      sandbox.set({ appSecret: secret })
      await traffic.next(100)
    }
    expect(traffic.failures.slice(0, 5)).toEqual([])
  }
  expect(await proxy.metric('oap_secret_reloads_total{outcome="accepted"}')).toBe(2)
  expect(count(proxy, REJECTED)).toBe(0)
  const canaries = new Canaries().add('first', first).add('second', 'second-secret').add('third', 'third-secret')
  expect(canaries.search(proxy.spawned.output)).toEqual([])
})

test.concurrent('half a secret, garbage, nothing, then the right one while the service rejects the old', async () => {
  await using sandbox = await startSandbox({ tokenLifetimeMs: LIFETIME_MS })
  await using proxy = await startProxyProcess(sandbox, { settings: SETTINGS })
  const { secretFile } = proxy
  const fresh = 'the-new-secret-of-this-rotation'
  {
    await using traffic = new Traffic(proxy)
    await traffic.next(100)

    // Truncates and writes without a pause, so that the proxy does not find the file empty.
    writeFileSync(secretFile, fresh.slice(0, 9))
    await eventually(() => count(proxy, REJECTED) === 1 || undefined, 'half a secret reported')
    writeFileSync(secretFile, Buffer.from([0x00, 0xff, 0xfe, 0x80, 0x00]))
    await eventually(() => count(proxy, UNUSABLE) === 1 || undefined, 'garbage reported')
    await truncate(secretFile)
    await eventually(() => count(proxy, UNUSABLE) === 2 || undefined, 'emptiness reported')
    await traffic.next(100)

    // In one step: when the proxy reads the file, the service accepts only the new secret.
    writeFileSync(secretFile, fresh)
    sandbox.set({ appSecret: fresh })
    await eventually(() => count(proxy, ACCEPTED) === 1 || undefined, 'the new secret in use')
    await traffic.next(200)
    expect(traffic.failures.slice(0, 5)).toEqual([])
  }
  expect(count(proxy, REJECTED)).toBe(1)
  const unusable = proxy.spawned.logs.filter(({ msg }) => msg === UNUSABLE)
  expect(unusable.map(({ file }) => file)).toEqual([secretFile, secretFile])
  expect(await proxy.metric('oap_secret_reloads_total{outcome="rejected"}')).toBe(1)
})
