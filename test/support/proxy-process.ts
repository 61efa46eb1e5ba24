/** The built program as a process with any service, started and ready, for tests that need a real process. */

import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type SpawnedProxy, spawnProxy } from './spawn-proxy.ts'
import { environmentOf, type ProxySettings } from './start-proxy.ts'

/** The settings for this service. */
export interface ServiceIdentity {
  readonly baseUrl: string
  readonly appId: string
  readonly appSecret: string
}

export class ProxyProcess implements AsyncDisposable {
  readonly spawned: SpawnedProxy
  readonly port: number
  readonly adminPort: number
  /** Made for this proxy alone. */
  readonly folder: string
  readonly secretFile: string

  constructor(
    spawned: SpawnedProxy,
    folder: string,
    secretFile: string,
    ports: Awaited<ReturnType<SpawnedProxy['ready']>>,
  ) {
    this.spawned = spawned
    this.folder = folder
    this.secretFile = secretFile
    this.port = ports.port
    this.adminPort = ports.adminPort
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
    await rm(this.folder, { recursive: true })
  }
}

export interface ProxyProcessOptions {
  readonly settings?: ProxySettings
  /** Below the folder made for this proxy; it has to exist when this is given. */
  readonly secretFile?: (folder: string) => Promise<string>
  /** Options of Node itself. */
  readonly nodeArgs?: readonly string[]
}

export async function startProxyProcess(
  service: ServiceIdentity,
  {
    settings = {},
    secretFile = (folder) => writeSecret(folder, service.appSecret),
    nodeArgs = [],
  }: ProxyProcessOptions = {},
): Promise<ProxyProcess> {
  const folder = await mkdtemp(join(tmpdir(), 'oap-'))
  const path = await secretFile(folder)
  const basis: ProxySettings = {
    appId: service.appId,
    appSecretFile: path,
    baseUrl: service.baseUrl,
    'listen.address': '127.0.0.1:0',
    'admin.address': '127.0.0.1:0',
  }
  const spawned = spawnProxy({ nodeArgs, env: environmentOf({ 'tokens.settleTime': '0s', ...basis, ...settings }) })
  try {
    return new ProxyProcess(spawned, folder, path, await spawned.ready())
  } catch (error) {
    await spawned[Symbol.asyncDispose]()
    await rm(folder, { recursive: true })
    throw error
  }
}

async function writeSecret(folder: string, secret: string): Promise<string> {
  const path = join(folder, 'secret')
  await writeFile(path, secret, { mode: 0o600 })
  return path
}
