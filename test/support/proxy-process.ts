/** The built program as a process for any service, started and ready, with a folder of its own. */

import { readFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import {
  environmentFor,
  type ServiceIdentity,
  type SpawnedProxy,
  type SpawnOptions,
  spawnProxy,
} from './spawn-proxy.ts'
import { environmentOf, type ProxySettings } from './start-proxy.ts'

export class ProxyProcess implements AsyncDisposable {
  readonly spawned: SpawnedProxy
  readonly port: number
  readonly adminPort: number
  readonly secretFile: string
  readonly #folder: AsyncDisposable

  constructor(
    spawned: SpawnedProxy,
    folder: AsyncDisposable,
    secretFile: string,
    ports: Awaited<ReturnType<SpawnedProxy['ready']>>,
  ) {
    this.spawned = spawned
    this.#folder = folder
    this.secretFile = secretFile
    this.port = ports.port
    this.adminPort = ports.adminPort
  }

  /** Made for this proxy alone. */
  get folder(): string {
    return dirname(this.secretFile)
  }

  /** The value of a metric, named with its labels. 0 if it was not counted yet. */
  async metric(name: string): Promise<number> {
    const response = await fetch(`http://127.0.0.1:${this.adminPort}/metrics`)
    const line = (await response.text()).split('\n').find((text) => text.startsWith(`${name} `))
    return line === undefined ? 0 : Number(line.slice(name.length))
  }

  /** Resident memory now, and at most so far. */
  async memory(): Promise<{ readonly residentBytes: number; readonly peakBytes: number }> {
    const status = await readFile(`/proc/${this.spawned.pid}/status`, 'utf8')
    const bytes = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)?.[1] ?? 0) * 1024
    return { residentBytes: bytes('VmRSS'), peakBytes: bytes('VmHWM') }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.spawned[Symbol.asyncDispose]()
    await this.#folder[Symbol.asyncDispose]()
  }
}

export interface ProxyProcessOptions extends SpawnOptions {
  readonly settings?: ProxySettings
  /** Called before the start, with the folder that already has the file `secret`. */
  readonly prepare?: (folder: string) => Promise<void>
}

/** It ignores the age of a token that is rejected, unless the settings say otherwise. */
export async function startProxyProcess(
  service: ServiceIdentity,
  { settings = {}, env = {}, prepare, ...options }: ProxyProcessOptions = {},
): Promise<ProxyProcess> {
  const basis = await environmentFor(service)
  await prepare?.(dirname(basis.OAP_APP_SECRET_FILE))
  const chosen = environmentOf({ 'admin.address': '127.0.0.1:0', 'tokens.settleTime': '0s', ...settings })
  const spawned = spawnProxy({ ...options, env: { ...basis, ...chosen, ...env } })
  try {
    return new ProxyProcess(spawned, basis, basis.OAP_APP_SECRET_FILE, await spawned.ready())
  } catch (error) {
    await spawned[Symbol.asyncDispose]()
    await basis[Symbol.asyncDispose]()
    throw error
  }
}
