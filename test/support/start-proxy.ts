/** The real program in this process, on a free port, configured as a user would: through settings. */

import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { type App, startApp } from '../../src/app/app.ts'
import { Log } from '../../src/app/log.ts'
import { loadConfig } from '../../src/config/load.ts'
import { settings as declared, type SettingKey } from '../../src/config/settings.ts'
import { certificateFiles } from './certificates.ts'
import { Changes } from './changes.ts'
import { request, tlsPorts } from './raw-client.ts'
import { type Service, type ServiceOptions, startService } from './service.ts'

/** By key, each written as in the environment. */
export type ProxySettings = { readonly [K in SettingKey]?: string }

/** A parsed line of the log. */
export interface LogLine {
  readonly level: string
  readonly msg?: string
  readonly path?: string
  readonly code?: string
  readonly status?: number
  readonly [field: string]: unknown
}

export class ProxyUnderTest implements AsyncDisposable {
  readonly app: App
  readonly port: number
  readonly secretFile: string
  /** All settings that it was started with, without its files. */
  readonly settings: ProxySettings
  readonly #lines: string[]
  readonly #changes: Changes
  readonly #folder: string

  constructor(app: App, folder: string, settings: ProxySettings, lines: string[], changes: Changes) {
    this.settings = settings
    this.app = app
    this.port = portOf(app.address)
    this.#folder = folder
    this.secretFile = join(folder, 'secret')
    this.#lines = lines
    this.#changes = changes
  }

  /** Resolves when the condition holds. It is checked after each line of the log. */
  until(condition: () => boolean, what: string): Promise<void> {
    return this.#changes.until(condition, what)
  }

  /** A file in the folder of the proxy. */
  at(name: string): string {
    return join(this.#folder, name)
  }

  get adminPort(): number {
    if (this.app.adminAddress === undefined) throw new Error('started without an admin listener')
    return portOf(this.app.adminAddress)
  }

  /** An answer of the admin listener. */
  async askAdmin(path: string, method = 'GET'): Promise<{ readonly status: number; readonly content: string }> {
    const raw = `${method} ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`
    const { status, content } = await request(this.adminPort, raw)
    return { status, content: content.toString() }
  }

  /** The value of a metric, named with its labels; NaN if there is none. */
  async metric(name: string): Promise<number> {
    const lines = (await this.askAdmin('/metrics')).content.split('\n')
    const line = lines.find((text) => text.startsWith(`${name} `))
    return Number(line?.slice(name.length) ?? Number.NaN)
  }

  /** Everything logged so far, at trace level. */
  get output(): string {
    return this.#lines.join('')
  }

  get logs(): LogLine[] {
    return this.#lines.map((line) => JSON.parse(line))
  }

  /** The line of the request with this path, once it has ended. */
  async logOf(path: string): Promise<LogLine> {
    const find = () => this.logs.find((line) => line.msg === 'request' && line.path === path)
    await this.#changes.until(() => find() !== undefined, `the log line of ${path}`)
    return find() as LogLine
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.app.close()
    tlsPorts.delete(this.port)
    await rm(this.#folder, { recursive: true })
  }
}

/** 0 for a unix socket. */
function portOf(address: string): number {
  return Number(/:(\d+)\/?$/.exec(address)?.[1] ?? 0)
}

/**
 * Starts a proxy for this service, with free ports, no admin listener and a recorded log. `settings` go on top. `files` are written
 * into the folder of the proxy; one named `proxy.yaml` is its config file. `$FOLDER` in them is
 * the path of that folder.
 */
export async function startProxy(
  service: Service,
  settings: ProxySettings = {},
  files: Readonly<Record<string, string>> = {},
): Promise<ProxyUnderTest> {
  const folder = await mkdtemp(join(tmpdir(), 'oap-'))
  for (const [name, content] of Object.entries(files)) {
    await writeFile(join(folder, name), content.replaceAll('$FOLDER', folder), { mode: 0o600 })
  }
  const file = 'proxy.yaml' in files ? join(folder, 'proxy.yaml') : undefined
  const secretFile = join(folder, 'secret')
  await writeFile(secretFile, service.tokens.appSecret, { mode: 0o600 })
  const lines: string[] = []
  const changes = new Changes()
  const destination = {
    write: (line: string) => {
      lines.push(line)
      changes.notify()
    },
  }
  const basis: ProxySettings = {
    appId: service.tokens.appId,
    appSecretFile: secretFile,
    baseUrl: service.baseUrl,
    'listen.address': 'localhost:0',
    'admin.address': 'off',
    // A token that a test revokes is old enough to be revoked. `tokens/young-tokens.test.ts` has the default.
    'tokens.settleTime': '0s',
  }
  const all = { ...basis, ...underTls(settings, files), ...settings }
  const source = { file, env: environmentOf(all) }
  const loaded = await loadConfig(source)
  const log = new Log({ level: 'trace', requests: 'all', sample: 1, format: 'json', destination })
  const app = await startApp(loaded, log, source)
  await app.warmed
  const proxy = new ProxyUnderTest(app, folder, all, lines, changes)
  if (all['listen.tls.certFile'] !== undefined && settings['listen.tls.certFile'] === undefined)
    tlsPorts.add(proxy.port)
  return proxy
}

/** A service and a proxy for it. Both end with the current test. */
export async function startBoth(
  options: ServiceOptions = {},
  settings: ProxySettings = {},
  files: Readonly<Record<string, string>> = {},
): Promise<{ readonly service: Service; readonly proxy: ProxyUnderTest }> {
  const service = await startService(options)
  const proxy = await startProxy(service, settings, files)
  onTestFinished(async () => {
    await proxy[Symbol.asyncDispose]()
    await service[Symbol.asyncDispose]()
  })
  return { service, proxy }
}

/** With `TEST_TLS=1`, every proxy that says nothing about TLS listens under TLS, and `RawClient` speaks TLS with it. */
function underTls(settings: ProxySettings, files: Readonly<Record<string, string>>): ProxySettings {
  const isUnix = settings['listen.address']?.startsWith('unix:') === true
  if (process.env['TEST_TLS'] !== '1' || isUnix || files['proxy.yaml']?.includes('tls:') === true) return {}
  const { certificate, key } = certificateFiles('localhost')
  return { 'listen.tls.certFile': certificate, 'listen.tls.keyFile': key }
}

export function environmentOf(given: ProxySettings): Record<string, string> {
  return Object.fromEntries(
    declared.flatMap(({ key, variable }) => {
      const value = given[key]
      return variable === undefined || value === undefined ? [] : [[variable, value]]
    }),
  )
}
