/** One soak: the schedule, the clients, and the report. The seed decides which requests are sent, and when the service causes trouble. */

import { deepEqual, ok } from 'node:assert/strict'
import { rename, writeFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Answer, KeepAliveClient } from '../support/keep-alive-client.ts'
import { type ProxyProcess, startProxyProcess } from '../support/proxy-process.ts'
import { Random } from '../support/seed.ts'
import { contentOf, SoakService } from './service.ts'

interface SoakOptions {
  readonly minutes: number
  readonly seed: number
}

interface SoakReport {
  readonly requests: number
  /** By status and, for the proxy's own errors, their code. */
  readonly answers: Readonly<Record<string, number>>
  readonly mints: number
  readonly restarts: number
  readonly rotations: number
  /** Counters that have to be 0. */
  readonly faults: {
    readonly wrongOrg: number
    readonly wrongByte: number
    /** Answers that ended in the middle. */
    readonly broken: number
    /** 401 to a request that could have been repeated with a new token. */
    readonly rejected: number
    /** Errors of the proxy at a time when the service was well. */
    readonly errorsInPeace: number
    /** 1 if the process ended by itself. */
    readonly crashed: number
  }
  readonly residentMiB: { readonly warm: number; readonly peak: number; readonly end: number }
}

const ORGS = 500
const CLIENTS = 40
/** Behind each request, so that the run tests the proxy and not the speed of the machine. */
const MAX_PAUSE_MS = 200
const RESTART_EVERY_MS = 120_000
const OUTAGE_MS = 2_000
/** After an outage the proxy has five seconds to find out that the service is back. */
const RECOVERY_MS = 10_000
const ROTATIONS = 4
/** How long the service takes both secrets. */
const OVERLAP_MS = 5_000
/** `replay.maxBody`: content that is longer cannot be sent a second time. */
const REPEATABLE_BYTES = 64 * 1024
const WARM_UP_MS = 30_000
const TELL_EVERY_MS = 30_000

/** `npm run soak`: says how far it is, then the result, and fails if a counter that has to be 0 is not. */
export async function longRun(options: SoakOptions, report: (line: string) => void): Promise<void> {
  await using service = new SoakService()
  await service.listen()
  await using proxy = await startProxyProcess(service.identity, { settings: { 'log.requests': 'off' } })
  const { faults, ...rest } = await new Soak(service, proxy, options, report).complete()
  report(JSON.stringify(rest))
  report(JSON.stringify(faults))
  deepEqual(
    Object.entries(faults).filter(([, count]) => count > 0),
    [],
  )
  ok((rest.answers['200'] ?? 0) > rest.requests * 0.9, 'nine in ten requests are served')
}

class Soak {
  readonly #service: SoakService
  readonly #proxy: ProxyProcess
  readonly #report: (line: string) => void
  readonly #random: Random
  readonly #startedAt = performance.now()
  readonly #endsAt: number
  readonly #answers: Record<string, number> = {}
  readonly #troubles: string[] = []
  #requests = 0
  #wrongOrg = 0
  #wrongByte = 0
  #broken = 0
  #rejected = 0
  #errorsInPeace = 0
  #rotations = 0
  #peaceAt = 0
  #isOver = false

  constructor(service: SoakService, proxy: ProxyProcess, options: SoakOptions, report: (line: string) => void) {
    this.#service = service
    this.#proxy = proxy
    this.#report = report
    this.#random = new Random(options.seed)
    this.#endsAt = this.#startedAt + options.minutes * 60_000
  }

  async complete(): Promise<SoakReport> {
    const clients = Array.from({ length: CLIENTS }, (_, i) => this.#client(this.#random.numbered(i)))
    const events = [this.#restart(), this.#rotate(), this.#tell()]
    const warm = sleep(Math.min(WARM_UP_MS, (this.#endsAt - this.#startedAt) / 2)).then(() => this.#residentMiB())
    await Promise.all(clients)
    this.#isOver = true
    await Promise.all(events)
    const peak = Math.round((await this.#proxy.memory()).peakBytes / 2 ** 20)
    const { exitCode, signalCode } = this.#proxy.spawned.child
    const hasCrashed = exitCode !== null || signalCode !== null
    for (const trouble of this.#troubles.slice(0, 20)) this.#report(trouble)
    return {
      requests: this.#requests,
      answers: this.#answers,
      mints: this.#service.mints,
      restarts: this.#service.restarts - 1,
      rotations: this.#rotations,
      faults: {
        wrongOrg: this.#wrongOrg + this.#service.wrongOrgs.length,
        wrongByte: this.#wrongByte + this.#service.wrongBytes.length,
        broken: this.#broken,
        rejected: this.#rejected,
        errorsInPeace: this.#errorsInPeace,
        crashed: hasCrashed ? 1 : 0,
      },
      residentMiB: { warm: await warm, peak, end: hasCrashed ? 0 : await this.#residentMiB() },
    }
  }

  async #client(random: Random): Promise<void> {
    using client = new KeepAliveClient(this.#proxy.port)
    while (performance.now() < this.#endsAt) {
      const org = `org-${random.integer(1, ORGS)}`
      const length = random.pick([0, 100, 10_000, 300_000])
      const kind = random.next()
      const contentBytes = kind < 0.6 ? undefined : kind < 0.9 ? random.integer(0, 10_000) : 100_000
      await this.#request(client, org, length, contentBytes)
      await sleep(random.integer(0, MAX_PAUSE_MS))
    }
  }

  async #request(
    client: KeepAliveClient,
    org: string,
    length: number,
    contentBytes: number | undefined,
  ): Promise<void> {
    const target = `/v2/as/${org}?length=${length}`
    const sentAt = performance.now()
    this.#requests += 1
    try {
      const answer = await (contentBytes === undefined
        ? client.get(target, org)
        : client.post(target, org, contentOf(org, contentBytes)))
      this.#judge(answer, org, length, contentBytes ?? 0, sentAt)
    } catch (error) {
      this.#count('broken')
      // The service cuts its connections when it restarts, and some answers with them.
      if (this.#isPeace(sentAt)) {
        this.#broken += 1
        this.#note(`broken: ${target}: ${error}`)
      }
    }
  }

  #judge({ status, head, content }: Answer, org: string, length: number, contentBytes: number, sentAt: number): void {
    const [, code] = /"code":"(\w+)"/.exec(content) ?? []
    const isOurs = /\r\nproxy-status:/i.test(head)
    this.#count(isOurs ? `${status} ${code}` : `${status}`)
    if (status === 200 && content !== contentOf(org, length)) {
      if (content.startsWith(`${org}/`)) this.#wrongByte += 1
      else this.#wrongOrg += 1
      this.#note(`wrong content for ${org}: ${content.slice(0, 60)}`)
    } else if (status === 401 && contentBytes <= REPEATABLE_BYTES) {
      this.#rejected += 1
      this.#note(`401 for ${org} with ${contentBytes} bytes of content`)
    } else if (isOurs && this.#isPeace(sentAt)) {
      this.#errorsInPeace += 1
      this.#note(`${status} ${code} for ${org} while the service was well`)
    }
  }

  /** True if the service was well from some time before the request until now. */
  #isPeace(sentAt: number): boolean {
    return sentAt > this.#peaceAt
  }

  async #restart(): Promise<void> {
    const totalMs = this.#endsAt - this.#startedAt
    const count = Math.max(1, Math.floor(totalMs / RESTART_EVERY_MS))
    for (let i = 0; i < count; i++) {
      await this.#until(((i + 0.5) * totalMs) / count)
      if (this.#isOver) return
      this.#peaceAt = Number.POSITIVE_INFINITY
      await this.#service.stop()
      await sleep(OUTAGE_MS)
      await this.#service.listen()
      this.#peaceAt = performance.now() + RECOVERY_MS
    }
  }

  async #rotate(): Promise<void> {
    const totalMs = this.#endsAt - this.#startedAt
    for (let i = 0; i < ROTATIONS; i++) {
      await this.#until(((i + 0.9) * totalMs) / ROTATIONS)
      if (this.#isOver) return
      const secret = `secret-${this.#random.integer(0, 2 ** 31)}-${i}`
      this.#service.acceptSecrets([this.#service.identity.appSecret, secret])
      await writeFile(`${this.#proxy.secretFile}.next`, `${secret}\n`, { mode: 0o600 })
      await rename(`${this.#proxy.secretFile}.next`, this.#proxy.secretFile)
      this.#rotations += 1
      await sleep(OVERLAP_MS)
      this.#service.acceptSecrets([secret])
    }
  }

  async #tell(): Promise<void> {
    for (let nextMs = TELL_EVERY_MS; ; nextMs += TELL_EVERY_MS) {
      await this.#until(nextMs)
      if (performance.now() >= this.#endsAt) return
      const seconds = Math.round((performance.now() - this.#startedAt) / 1_000)
      const answers = JSON.stringify(this.#answers)
      this.#report(`${seconds} s: ${this.#requests} requests, ${answers}, ${await this.#residentMiB()} MiB`)
    }
  }

  /** Until so long after the start, or the end of the run. */
  async #until(afterStartMs: number): Promise<void> {
    const at = Math.min(this.#startedAt + afterStartMs, this.#endsAt)
    await sleep(Math.max(0, at - performance.now()))
  }

  #count(answer: string): void {
    this.#answers[answer] = (this.#answers[answer] ?? 0) + 1
  }

  #note(trouble: string): void {
    const seconds = ((performance.now() - this.#startedAt) / 1_000).toFixed(1)
    this.#troubles.push(`  at ${seconds} s: ${trouble}`)
  }

  async #residentMiB(): Promise<number> {
    return Math.round((await this.#proxy.memory()).residentBytes / 2 ** 20)
  }
}
