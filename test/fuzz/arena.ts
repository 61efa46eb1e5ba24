/** The built proxy in a process of its own before a scripted service, and what must hold of both behind every case. */

import { readdir } from 'node:fs/promises'
import { type Canaries, canariesOf } from '../support/canaries.ts'
import { DeadlineExceeded, eventually } from '../support/changes.ts'
import type { StreamEnd } from '../support/http-reader.ts'
import { PROBE_ARGS, ProcessProbe } from '../support/process-probe.ts'
import { type ProxyProcess, startProxyProcess } from '../support/proxy-process.ts'
import { RawClient } from '../support/raw-client.ts'
import { type Service, type ServiceOptions, startService } from '../support/service.ts'
import { Violation } from './messages.ts'

const EXCHANGE_DEADLINE_MS = 15_000
const CLOSE_DEADLINE_MS = 15_000

/** Batches after which what stays for good is there: compiled code, the metrics of every code, a token for every usual Org. */
const WARM_UP_BATCHES = 25
/**
 * Over all batches behind those, and `BYTES_PER_ORG` beside it: up to 2,048 names of fields are remembered for each side, and
 * code is compiled for rare damage. The heap grew by half of this in 60,000 cases, and by less and less.
 */
const MAX_HEAP_GROWTH_BYTES = 2 * 1024 * 1024
/** A cached token with its record. Damage makes new Orgs, and their tokens are kept. */
const BYTES_PER_ORG = 2_048

/** What a client saw on its connection. */
export interface Transcript {
  /** Latin1. */
  readonly received: string
  readonly end: StreamEnd
}

export class Arena implements AsyncDisposable {
  readonly service: Service
  readonly canaries: Canaries
  readonly #proxy: ProxyProcess
  readonly #baseline: number
  readonly #probe: ProcessProbe
  #batches = 0
  #mints = 0
  /** Behind the first batches. */
  #warmHeapBytes: number | undefined

  private constructor(service: Service, proxy: ProxyProcess, baseline: number, probe: ProcessProbe) {
    this.service = service
    this.#proxy = proxy
    this.#baseline = baseline
    this.#probe = probe
    this.canaries = canariesOf(service.tokens)
  }

  static async start(options: ServiceOptions, settings: Readonly<Record<string, string>>): Promise<Arena> {
    const service = await startService(options)
    const env = { OAP_LOG_LEVEL: 'trace', OAP_ADMIN_ADDRESS: 'off', OAP_TOKENS_SETTLE_TIME: '5s', ...settings }
    const proxy = await startProxyProcess(service, { env, nodeArgs: PROBE_ARGS })
    const probe = await ProcessProbe.attach(proxy.spawned)
    return new Arena(service, proxy, await countDescriptors(proxy.spawned.pid), probe)
  }

  /**
   * Sends the pieces, and reads until the proxy ends its side. With `quietMs`, the client ends its own once nothing has come
   * back for so long: a client that ends it earlier has left.
   */
  async exchange(pieces: readonly string[], quietMs?: number): Promise<Transcript> {
    await using client = await RawClient.plain(this.#proxy.port, { deadlineMs: EXCHANGE_DEADLINE_MS })
    for (const piece of pieces) client.send(piece)
    const quiet = quietMs === undefined ? undefined : setTimeout(() => client.endSending(), quietMs)
    client.socket.on('data', () => quiet?.refresh())
    try {
      const { bytes, end } = await client.untilClosed()
      return { received: bytes.toString('latin1'), end }
    } catch (error) {
      if (!(error instanceof DeadlineExceeded)) throw error
      throw new Violation('hung', { sent: pieces, received: client.received.toString('latin1') })
    } finally {
      clearTimeout(quiet)
    }
  }

  /** The last lines that the proxy printed. */
  get lastLines(): string[] {
    return this.#proxy.spawned.stdout.slice(-40)
  }

  /** Nothing secret in these bytes. */
  checkSecrets(bytes: string, where: string, evidence: Readonly<Record<string, unknown>>): void {
    const hits = this.canaries.search(Buffer.from(bytes, 'latin1'))
    if (hits.length > 0) throw new Violation(`a secret in ${where}`, { hits, ...evidence })
  }

  /** The process lives, printed no secret and met nothing that it did not expect. Forgets what was printed. */
  checkProcess(evidence: Readonly<Record<string, unknown>>): void {
    const { child, stdout, stderr } = this.#proxy.spawned
    const printed = [...stdout, ...stderr].join('\n')
    if (child.exitCode !== null || child.signalCode !== null) throw new Violation('the proxy is gone', { printed })
    this.checkSecrets(Buffer.from(printed).toString('latin1'), 'the log', evidence)
    const faults = stdout.filter((line) => /proxy_internal_error|unexpected failure|"level":"fatal"/.test(line))
    if (faults.length > 0 || stderr.length > 0)
      throw new Violation('a fault of the proxy', { faults, stderr, ...evidence })
    stdout.length = 0
  }

  /** Ends a batch: forgets what the service has recorded. */
  async forget(): Promise<void> {
    const { origin, tokens } = this.service
    this.#batches++
    if (this.#batches > WARM_UP_BATCHES) this.#mints += tokens.mints.length
    if (this.#batches === WARM_UP_BATCHES) this.#warmHeapBytes = await this.#probe.heapBytes()
    origin.requests.length = 0
    origin.malformed.length = 0
    tokens.mints.length = 0
    const open = origin.openConnections
    origin.connections.splice(0, Number.POSITIVE_INFINITY, ...open)
    for (const connection of open) connection.requests.length = 0
  }

  /** Every descriptor that the cases opened is closed again, those of the pools towards the service aside. */
  async checkDescriptors(pooled: number): Promise<void> {
    const allowed = this.#baseline + pooled
    await eventually(
      async () => (await countDescriptors(this.#proxy.spawned.pid)) <= allowed || undefined,
      `no more than ${allowed} descriptors`,
      CLOSE_DEADLINE_MS,
    )
  }

  /** No timer is left, and the heap is what it was behind the first batches, the tokens since then aside. */
  async checkMemory(): Promise<void> {
    const isQuiet = async () => {
      const { Timeout: timers } = await this.#probe.resources()
      return timers === undefined || undefined
    }
    await eventually(isQuiet, 'no timer', CLOSE_DEADLINE_MS)
    if (this.#warmHeapBytes === undefined) return
    const growthBytes = (await this.#probe.heapBytes()) - this.#warmHeapBytes
    const allowedBytes = MAX_HEAP_GROWTH_BYTES + this.#mints * BYTES_PER_ORG
    if (growthBytes > allowedBytes) throw new Violation('the heap has grown', { growthBytes, allowedBytes })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#probe[Symbol.dispose]()
    await this.#proxy[Symbol.asyncDispose]()
    await this.service[Symbol.asyncDispose]()
  }
}

async function countDescriptors(pid: number): Promise<number> {
  return (await readdir(`/proc/${pid}/fd`)).length
}
