/**
 * A simulated process that runs the program: its source as it stands, whose clock, timers, random numbers, files and sockets are those
 * of a world.
 */

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { compileFunction } from 'node:vm'
import type { App } from '../../../src/app/app.ts'
import type { Status } from '../../../src/part.ts'
import type { program } from '../program-entry.ts'
import { type Host, simulatedNet } from './handles.ts'
import { Loop } from './loop.ts'
import { Random } from './random.ts'
import type { Network } from './tcp.ts'
import type { World } from './world.ts'

type Program = typeof program
type Compiled = (...args: unknown[]) => void

/** What the code of the program gets in place of Node's. */
const REPLACED = [
  'setTimeout',
  'clearTimeout',
  'setInterval',
  'clearInterval',
  'setImmediate',
  'clearImmediate',
  'performance',
  'Date',
  'Math',
] as const

/** How long the pool of threads takes for a file. */
const FILE_MS = 0.2

/** Its modules, which are run anew for each process: some have state of their own. */
class Instance {
  host: (Host & { readonly random: Random; readonly files: Files }) | undefined
  readonly program: Program

  constructor(run: Compiled | undefined) {
    assert(run !== undefined)
    const instance = this
    const here = () => {
      if (this.host === undefined) throw new Error('the program runs outside of a world')
      return this.host
    }
    const host: Host = {
      get name() {
        return here().name
      },
      get loop() {
        return here().loop
      },
      get network() {
        return here().network
      },
    }
    const net = simulatedNet(host)
    // Modules that are loaded may look at the clock.
    const performance = { now: () => this.host?.loop.world.now ?? 0 }
    class SimulatedDate extends Date {
      constructor(...given: [] | [number]) {
        super(...(given.length === 0 ? ([SimulatedDate.now()] as const) : given))
      }
      static override now(): number {
        return instance.host?.loop.world.day ?? 0
      }
    }
    const math = Object.create(Math, {
      random: { value: () => here().random.next() },
    })
    const sleep = (delayMs: number, value?: unknown) =>
      new Promise((resolve) => here().loop.timers.setTimeout(() => resolve(value), delayMs))
    const later = (value?: unknown) => new Promise((resolve) => here().loop.setImmediate(() => resolve(value)))
    const real = createRequire(import.meta.url)
    const modules: Readonly<Record<string, unknown>> = {
      net,
      perf_hooks: { ...real('node:perf_hooks'), performance },
      'timers/promises': { setTimeout: sleep, setImmediate: later },
      'fs/promises': {
        open: (path: string) => here().files.open(path, here().loop),
        stat: (path: string) => here().files.stat(path, here().loop),
      },
      fs: { ...real('node:fs'), readFileSync: () => 'Max open files            100000' },
      crypto: {
        ...real('node:crypto'),
        randomBytes: (length: number) => here().random.bytes(length),
        randomUUID: () => here().random.bytes(16).toString('hex'),
      },
    }
    const require = (id: string) => modules[id.replace(/^node:/, '')] ?? real(id)
    const module_ = { exports: {} as { program: Program } }
    run(
      require,
      module_,
      module_.exports,
      (...args: Parameters<Loop['timers']['setTimeout']>) => here().loop.timers.setTimeout(...args),
      (timer: unknown) => instance.host?.loop.timers.clear(timer),
      (...args: Parameters<Loop['timers']['setInterval']>) => here().loop.timers.setInterval(...args),
      (timer: unknown) => instance.host?.loop.timers.clear(timer),
      (...args: Parameters<Loop['setImmediate']>) => here().loop.setImmediate(...args),
      (immediate: unknown) => instance.host?.loop.clearImmediate(immediate),
      performance,
      SimulatedDate,
      math,
    )
    this.program = module_.exports.program
  }
}

/** Files of a simulated machine. */
class Files {
  readonly #files = new Map<string, { readonly bytes: Buffer; readonly changed: bigint }>()
  #changes = 0n

  write(path: string, content: string): void {
    this.#files.set(path, { bytes: Buffer.from(content), changed: ++this.#changes })
  }

  remove(path: string): void {
    this.#files.delete(path)
  }

  async stat(path: string, loop: Loop) {
    await wait(loop)
    const { bytes, changed } = this.#found(path)
    return { dev: 1n, ino: changed, size: BigInt(bytes.length), mtimeNs: changed, ctimeNs: changed }
  }

  async open(path: string, loop: Loop) {
    await wait(loop)
    const { bytes } = this.#found(path)
    let at = 0
    return {
      stat: async () => ({ isFile: () => true, size: bytes.length, mode: 0o100600 }),
      read: async (buffer: Buffer, offset: number) => {
        await wait(loop)
        const bytesRead = bytes.copy(buffer, offset, at)
        at += bytesRead
        return { bytesRead }
      },
      close: async () => undefined,
      [Symbol.asyncDispose]: async () => undefined,
    }
  }

  #found(path: string) {
    const found = this.#files.get(path)
    if (found === undefined) throw Object.assign(new Error('no such file'), { code: 'ENOENT' })
    return found
  }
}

function wait(loop: Loop): Promise<void> {
  return new Promise((resolve) => loop.world.after(FILE_MS, () => loop.next(resolve)))
}

/** One line of the log. */
export type LogLine = Readonly<Record<string, unknown>> & { readonly msg: string; readonly level: string }

const CONFIG_FILE = '/etc/oap/proxy.yaml'

export class ProxyProcess {
  static #compiled: Compiled | undefined

  /** To be called once, before all others. */
  static load(code: string): void {
    ProxyProcess.#compiled = compileFunction(code, ['require', 'module', 'exports', ...REPLACED], {
      filename: 'program.cjs',
    }) as Compiled
  }

  readonly loop: Loop
  readonly files = new Files()
  readonly logs: LogLine[] = []
  app: App | undefined
  /** Why it did not start. */
  failure: unknown
  readonly #instance: Instance
  readonly #world: World
  readonly #name: string

  constructor(world: World, network: Network, name: string) {
    this.#name = name
    const random = new Random(world.seed, name)
    this.#world = world
    this.loop = new Loop(world, () => random.spread(0.01, 0.2))
    this.#instance = new Instance(ProxyProcess.#compiled)
    this.#instance.host = {
      name,
      loop: this.loop,
      network,
      random: new Random(world.seed, `${name} itself`),
      files: this.files,
    }
  }

  configure(settings: object): void {
    this.files.write(CONFIG_FILE, JSON.stringify(settings))
  }

  /** Runs the world until the program listens, or has failed. */
  start(): void {
    this.begin()
    this.#world.run(this.#world.now + 60_000, () => this.app !== undefined || this.failure !== undefined)
  }

  /** The same while the world runs. */
  begin(): void {
    const { program } = this.#instance
    const source = { file: CONFIG_FILE, env: {} }
    const write = (line: string) => {
      const parsed: LogLine = JSON.parse(line)
      this.logs.push(parsed)
      this.#world.tell(this.#name === 'proxy' ? 'log' : `log ${this.#name}`, line.trim())
    }
    const begin = async () => {
      const loaded = await program.loadConfig(source)
      const log = new program.Log({ ...loaded.config.log, format: 'json', destination: { write } })
      this.app = await program.startApp(loaded, log, source)
    }
    this.do(() => begin().catch((error: unknown) => (this.failure = error)))
  }

  #told: { readonly gauges: Status; readonly calls: number } | undefined

  /** What the program tells of itself. It is looked at more often than it changes. */
  get gauges(): Status | undefined {
    const { calls } = this.loop
    if (this.app !== undefined && this.#told?.calls !== calls) this.#told = { gauges: this.app.inspect(), calls }
    return this.#told?.gauges
  }

  /** What the page says of the Orgs. */
  orgStatuses() {
    const { operator } = this.app ?? {}
    return operator === undefined ? [] : this.#instance.program.orgStatuses(operator.orgs)
  }

  /** In the process, as libuv calls it. */
  do(callback: () => unknown): void {
    this.loop.next(() => void callback())
  }

  /** The process is gone. */
  end(): void {
    this.loop.end()
    this.#instance.host = undefined
  }
}
