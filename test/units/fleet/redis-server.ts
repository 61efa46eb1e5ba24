/** Real Redis servers for the tests: Debian's, each as a process on a free port. */

import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { eventually } from '../../support/changes.ts'
import { freePort } from '../../support/listening.ts'
import { scaled } from '../../support/pace.ts'

const run = promisify(execFile)

/** The first Valkey was 7. */
export const hasValkey = spawnSync('valkey-server', ['--version']).status === 0

export interface RedisOptions {
  /** Further options, as on the command line: `['--requirepass', 'x']`. */
  readonly args?: readonly string[]
  readonly tls?: { readonly certificate: string; readonly key: string }
  readonly program?: string
}

export class RedisServer implements AsyncDisposable {
  readonly port: number
  readonly folder: string
  readonly #options: RedisOptions
  #child: ChildProcess

  private constructor(port: number, folder: string, options: RedisOptions) {
    this.port = port
    this.folder = folder
    this.#options = options
    this.#child = this.#spawn()
  }

  static async start(options: RedisOptions = {}): Promise<RedisServer> {
    const folder = await mkdtemp(join(tmpdir(), 'oap-redis-'))
    for (let attempt = 0; ; attempt += 1) {
      const server = new RedisServer(await freePort(), folder, options)
      if (await server.#isReady()) return server
      // Another process may have taken the port meanwhile.
      if (attempt === 3) throw new Error(`redis-server has ended: ${await server.log()}`)
    }
  }

  get url(): string {
    return `${this.#options.tls ? 'rediss' : 'redis'}://127.0.0.1:${this.port}`
  }

  /** Runs a command like `redis-cli`, and resolves with its output. */
  async cli(...args: string[]): Promise<string> {
    const tls = this.#options.tls ? ['--tls', '--insecure'] : []
    const { stdout } = await run('redis-cli', ['-p', String(this.port), ...tls, ...args], {
      maxBuffer: 1 << 26,
      timeout: Math.round(scaled(10_000)),
    })
    return stdout.trim()
  }

  /** One field of INFO. */
  async info(section: string, field: string): Promise<string> {
    return new RegExp(`^${field}:(.*?)\\r?$`, 'm').exec(await this.cli('info', section))?.[1] ?? ''
  }

  signal(name: NodeJS.Signals): void {
    this.#child.kill(name)
  }

  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    const exited = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await exited
  }

  /** Restarts it on the same port, without its data. */
  async restart(): Promise<void> {
    await this.kill()
    this.#child = this.#spawn()
    if (!(await this.#isReady())) throw new Error(`redis-server has ended: ${await this.log()}`)
  }

  log(): Promise<Buffer> {
    return readFile(join(this.folder, 'redis.log'))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill('SIGCONT')
    await this.kill()
    await rm(this.folder, { recursive: true, force: true })
  }

  #spawn(): ChildProcess {
    const { tls, args = [], program = 'redis-server' } = this.#options
    const ports = tls
      ? ['--port', '0', '--tls-port', String(this.port), '--tls-auth-clients', 'no']
      : ['--port', String(this.port)]
    const certificates = tls
      ? ['--tls-cert-file', tls.certificate, '--tls-key-file', tls.key, '--tls-ca-cert-file', tls.certificate]
      : []
    const common = ['--bind', '127.0.0.1', '--save', '', '--dir', this.folder, '--logfile', 'redis.log']
    return spawn(program, [...ports, ...certificates, ...common, '--loglevel', 'debug', ...args], { stdio: 'ignore' })
  }

  /** False if it has ended. */
  async #isReady(): Promise<boolean> {
    const answer = await eventually(async () => {
      if (this.#child.exitCode !== null || this.#child.signalCode !== null) return 'ended'
      const text = await this.cli('ping').catch(() => '')
      return text.includes('PONG') || text.includes('NOAUTH') ? text : undefined
    }, 'redis-server to answer')
    return answer !== 'ended'
  }
}
