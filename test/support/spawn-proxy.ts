/** The built program as a process of its own: environment in, lines out, signals, exit code. */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { Changes } from './changes.ts'
import { makeFolder } from './folder.ts'

export const MAIN = fileURLToPath(new URL('../../dist/main.js', import.meta.url))

/** Options of Node in the image and in the unit of systemd. */
export const START_ARGS: readonly string[] = ['--max-semi-space-size=8']

export interface SpawnOptions {
  readonly args?: readonly string[]
  /** The whole environment, except `PATH` and `HOME`. Nothing of the test runner's environment gets in. */
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
  /** Options of Node itself, before the program. */
  readonly nodeArgs?: readonly string[]
}

export interface Exit {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

export class SpawnedProxy implements AsyncDisposable {
  readonly child: ChildProcess
  /** Complete lines, unchanged. */
  readonly stdout: string[] = []
  readonly stderr: string[] = []
  readonly exited: Promise<Exit>
  readonly #changes = new Changes()

  constructor(child: ChildProcess) {
    this.child = child
    this.#collect(child.stdout, this.stdout)
    this.#collect(child.stderr, this.stderr)
    this.exited = once(child, 'close').then(([code, signal]) => ({ code, signal }))
    void this.exited.then(() => this.#changes.notify())
  }

  get pid(): number {
    if (this.child.pid === undefined) throw new Error('the process did not start')
    return this.child.pid
  }

  /** Everything printed so far. */
  get output(): string {
    return [...this.stdout, ...this.stderr].join('\n')
  }

  /** The lines of the log, parsed. */
  get logs(): Record<string, unknown>[] {
    return this.stdout.filter((line) => line.startsWith('{')).map((line) => JSON.parse(line))
  }

  /** The first matching line of either stream. Fails if the process ends without one. */
  async waitForLine(pattern: RegExp, deadlineMs = 30_000): Promise<string> {
    const find = () => [...this.stdout, ...this.stderr].find((line) => pattern.test(line))
    const hasEnded = () => this.child.exitCode !== null || this.child.signalCode !== null
    await this.#changes.until(() => find() !== undefined || hasEnded(), `a line like ${pattern}`, deadlineMs)
    const line = find()
    if (line === undefined) throw new Error(`ended without a line like ${pattern}:\n${this.output}`)
    return line
  }

  /** Resolves when the program is ready, with the ports from that line of its log; 0 stands for a unix socket. */
  async ready(deadlineMs?: number): Promise<{ readonly port: number; readonly adminPort: number }> {
    const { address, adminAddress } = JSON.parse(await this.waitForLine(/"msg":"ready"/, deadlineMs))
    const portOf = (text: string) => Number(/:(\d+)$/.exec(text)?.[1] ?? 0)
    return { port: portOf(address), adminPort: portOf(adminAddress) }
  }

  signal(name: NodeJS.Signals): void {
    this.child.kill(name)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.child.exitCode === null && this.child.signalCode === null) this.child.kill('SIGKILL')
    await this.exited
  }

  #collect(stream: NodeJS.ReadableStream | null, lines: string[]): void {
    let rest = ''
    stream?.setEncoding('utf8').on('data', (text: string) => {
      const pieces = `${rest}${text}`.split('\n')
      rest = pieces.pop() ?? ''
      lines.push(...pieces)
      this.#changes.notify()
    })
    stream?.on('end', () => {
      if (rest !== '') lines.push(rest)
      this.#changes.notify()
    })
  }
}

export function spawnProxy(options: SpawnOptions = {}): SpawnedProxy {
  const { PATH = '', HOME = '' } = process.env
  const child = spawn(process.execPath, [...START_ARGS, ...(options.nodeArgs ?? []), MAIN, ...(options.args ?? [])], {
    env: { PATH, HOME, ...options.env },
    stdio: ['ignore', 'pipe', 'pipe'],
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
  })
  return new SpawnedProxy(child)
}

/** The settings for a service. */
export interface ServiceIdentity {
  readonly baseUrl: string
  readonly appId: string
  readonly appSecret: string
}

interface ProxyEnvironment extends AsyncDisposable, Readonly<Record<string, string>> {
  readonly OAP_APP_SECRET_FILE: string
}

/** The environment of a process for this service: the secret in a file, free ports. Further settings go on top. */
export async function environmentFor(service: ServiceIdentity): Promise<ProxyEnvironment> {
  const folder = await makeFolder()
  const settings = {
    OAP_APP_ID: service.appId,
    OAP_APP_SECRET_FILE: await folder.write('secret', service.appSecret),
    OAP_BASE_URL: service.baseUrl,
    OAP_LISTEN_ADDRESS: '127.0.0.1:0',
    OAP_ADMIN_ADDRESS: 'off',
  }
  return Object.assign(settings, { [Symbol.asyncDispose]: folder[Symbol.asyncDispose] })
}
