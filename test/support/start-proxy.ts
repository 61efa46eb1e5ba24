/** The real program in this process, on a free port, configured as a user would: through settings. */

import { afterAll, onTestFinished } from 'vitest'
import { type App, startApp } from '../../src/app/app.ts'
import { Log } from '../../src/app/log.ts'
import { loadConfig } from '../../src/config/load.ts'
import { settings as declared, type SettingKey } from '../../src/config/settings.ts'
import { certificateFiles } from './certificates.ts'
import { Changes } from './changes.ts'
import { type Folder, makeFolder } from './folder.ts'
import { request, tlsPorts, unixPorts } from './raw-client.ts'
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
  readonly #parsed: LogLine[] = []
  readonly #changes: Changes
  readonly #folder: Folder

  constructor(app: App, folder: Folder, settings: ProxySettings, lines: string[], changes: Changes) {
    this.settings = settings
    this.app = app
    const path = isUnder('TEST_UNIX') ? app.address.replace(/^unix:/, '') : ''
    this.port = path.startsWith('/') ? FIRST_UNIX_PORT + unixPorts.size : portOf(app.address)
    if (path.startsWith('/')) unixPorts.set(this.port, path)
    this.#folder = folder
    this.secretFile = folder.at('secret')
    this.#lines = lines
    this.#changes = changes
  }

  /** Resolves when the condition holds. It is checked after each line of the log. */
  until(condition: () => boolean, what: string, deadlineMs?: number): Promise<void> {
    return this.#changes.until(condition, what, deadlineMs)
  }

  /** A file in the folder of the proxy. */
  at(name: string): string {
    return this.#folder.at(name)
  }

  get adminPort(): number {
    if (this.app.adminAddress === undefined) throw new Error('started without an admin listener')
    return portOf(this.app.adminAddress)
  }

  get minterPort(): number {
    if (this.app.minterAddress === undefined) throw new Error('started without minter.address')
    return portOf(this.app.minterAddress)
  }

  /** An answer of the admin listener. */
  async askAdmin(path: string, method = 'GET'): Promise<{ readonly status: number; readonly content: string }> {
    const raw = `${method} ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`
    const socket = /^unix:(.*)/.exec(this.app.adminAddress ?? '')?.[1]
    const { status, content } = await request(socket ?? this.adminPort, raw)
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

  /** Each line is parsed once: conditions look again and again. */
  get logs(): LogLine[] {
    for (let i = this.#parsed.length; i < this.#lines.length; i++) this.#parsed.push(JSON.parse(this.#lines[i] ?? ''))
    return [...this.#parsed]
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
    await this.#folder[Symbol.asyncDispose]()
  }
}

const FIRST_UNIX_PORT = 100_000

const isUnder = (variable: 'TEST_TLS' | 'TEST_UNIX') => process.env[variable] === '1'

/** 0 for a unix socket. */
function portOf(address: string): number {
  return Number(/:(\d+)\/?$/.exec(address)?.[1] ?? 0)
}

/**
 * Starts a proxy for this service, with free ports, no admin listener and a recorded log. `settings` go on top. `files` are
 * written into the folder of the proxy; one named `proxy.yaml` is its config file. `$FOLDER` in settings and files is the path
 * of that folder.
 */
export async function startProxy(
  service: Service,
  settings: ProxySettings = {},
  files: Readonly<Record<string, string>> = {},
): Promise<ProxyUnderTest> {
  const folder = await makeFolder()
  const filled = (text: string) => text.replaceAll('$FOLDER', folder.path)
  for (const [name, content] of Object.entries(files)) await folder.write(name, filled(content))
  const file = 'proxy.yaml' in files ? folder.at('proxy.yaml') : undefined
  const lines: string[] = []
  const changes = new Changes()
  const destination = {
    write: (line: string) => {
      lines.push(line)
      changes.notify()
    },
  }
  const { appId, appSecret } = service.tokens
  const own = { appId, appSecretFile: await folder.write('secret', appSecret) }
  const basis: ProxySettings = {
    ...(settings['minter.url'] === undefined && (settings['tokens.assertionFile'] === undefined ? own : { appId })),
    baseUrl: service.baseUrl,
    'listen.address': 'localhost:0',
    'admin.address': 'off',
    // Room for the default of 10,000 takes a quarter of a start.
    'tokens.maxOrgs': '1000',
    // A token that a test revokes is old enough to be revoked. `units/token/rules.test.ts` has the default.
    'tokens.settleTime': '0s',
  }
  const entries = Object.entries({ ...basis, ...listener(settings, files), ...settings })
  const all: ProxySettings = Object.fromEntries(entries.map(([key, value]) => [key, filled(value)]))
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

type Given = [options?: ServiceOptions, settings?: ProxySettings, files?: Readonly<Record<string, string>>]

/** A service and a proxy for it. Both end with the current test. */
export function startBoth(...given: Given) {
  return startUntil(onTestFinished, ...given)
}

/** The same for one file or `describe`, at whose end both end. */
export function startBothForFile(...given: Given) {
  return startUntil(afterAll, ...given)
}

async function startUntil(atEnd: (stop: () => Promise<void>) => void, ...[options, settings, files]: Given) {
  const service = await startService(options)
  const proxy = await startProxy(service, settings, files)
  atEnd(async () => {
    await proxy[Symbol.asyncDispose]()
    await service[Symbol.asyncDispose]()
  })
  return { service, proxy }
}

/**
 * With `TEST_TLS=1`, every proxy that says nothing about TLS listens under TLS; with `TEST_UNIX=1`, one that says nothing about
 * its listener listens on a unix socket. The clients of the tests do the same. `listen.address: localhost:0` keeps to plain TCP.
 */
function listener(settings: ProxySettings, files: Readonly<Record<string, string>>): ProxySettings {
  const isSet = Object.keys(settings).some((key) => key.startsWith('listen.tls') || key === 'listen.address')
  if (isUnder('TEST_UNIX') && !isSet && !/(?:tls|address):/.test(files['proxy.yaml'] ?? '')) {
    return { 'listen.address': 'unix:$FOLDER/proxy.sock' }
  }
  const isPlain = /^(?:unix:|off$|localhost:0$)/.test(settings['listen.address'] ?? '')
  if (!isUnder('TEST_TLS') || isPlain || files['proxy.yaml']?.includes('tls:') === true) return {}
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
