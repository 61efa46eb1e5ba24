/**
 * The log: JSON lines, or lines for people. pino has the levels and the format. The line of a request is built by hand: it is the
 * most expensive thing that this program does for each request, and pino would take twice as long for it.
 */

import pino, { type Logger } from 'pino'
import * as clock from '../clock.ts'
import type { Config } from '../config/schema.ts'
import { remedyOf } from '../errors.ts'
import {
  NOT_KEPT,
  type RequestRecord,
  type TunnelEnd,
  type TunnelRecord,
  wasNotKept,
} from '../gateway/request-record.ts'
import type { PartWarnings, Status } from '../part.ts'
import { StdoutOutput } from './log-output.ts'

/** These may change while the program runs. */
type LogVolume = Pick<Config['log'], 'level' | 'requests' | 'sample'>

interface LogOptions extends Readonly<Config['log']> {
  /** Stands in each line. */
  readonly instance?: string | undefined
  /** Receives the lines instead of stdout. */
  readonly destination?: Pick<StdoutOutput, 'write'> & Partial<StdoutOutput>
}

const EPISODE_MS = 5 * 60_000
const OUTPUT_PROBLEMS: Readonly<Record<string, string>> = {
  ENOSPC: 'the disk of stdout is full (ENOSPC)',
  EPIPE: 'the reader of stdout has gone (EPIPE)',
}

/** Anybody who can connect can be refused, as fast as the network permits. Of each code, the first in a second has a line, too. */
const MAX_REFUSALS_PER_SECOND = 100
const MAX_PATH_CHARACTERS = 1_024

export class Log {
  readonly logger: Logger
  readonly #write: (line: string) => void
  /** As it stands in the line of a request. */
  readonly #instance: string
  readonly #destination: Partial<StdoutOutput>
  #volume: LogVolume
  /** Of the last line of a request. */
  #time = { ms: Number.NaN, text: '' }
  /** The lines of refusals in the current second. */
  #second = { endsAt: 0, lines: 0, codes: new Set<string>() }
  /** Lines of refusals that were left out: since the start, and since the last line about them. */
  omittedLines = 0
  #newlyOmitted = 0
  #telling: clock.Timer | undefined

  constructor({ format, instance, destination = new StdoutOutput(), ...volume }: LogOptions) {
    this.#instance = instance === undefined ? '' : `,"instance":${quoted(instance)}`
    this.#destination = destination
    this.#volume = volume
    this.#write = (line) => destination.write(format === 'pretty' ? prettyLine(line) : line)
    this.logger = pino(
      {
        level: volume.level,
        base: instance === undefined ? null : { instance },
        timestamp: () => `,"time":"${new Date(clock.day()).toISOString()}"`,
        formatters: { level: (label) => ({ level: label }) },
      },
      { write: this.#write },
    )
  }

  /** An episode ends five minutes after the last line that was dropped. `problem`: why no line is written now. */
  warnings(now: number): PartWarnings {
    const { droppedLines = 0, lastDropAt = Number.NEGATIVE_INFINITY, problem } = this.#destination
    if (now - lastDropAt >= EPISODE_MS && problem === undefined) return {}
    const cause =
      problem === undefined || problem === 'EAGAIN'
        ? 'nobody reads stdout'
        : (OUTPUT_PROBLEMS[problem] ?? `stdout fails with ${problem}`)
    const lost = droppedLines === 0 ? 'wait' : `were dropped, ${droppedLines} since the start`
    return {
      log_lines_dropped: `Lines of the log ${lost}, because ${cause}. Correct that, or set log.requests or log.sample to write less.`,
    }
  }

  status(): Partial<Status> {
    return { logLinesDropped: this.#destination.droppedLines ?? 0, logLinesOmitted: this.omittedLines }
  }

  use({ log }: { readonly log: LogVolume }): void {
    this.logger.level = log.level
    this.#volume = log
  }

  /** Writes the line of a request that has ended. */
  request(record: RequestRecord): void {
    const { requests, sample } = this.#volume
    if (requests === 'off') return
    const { code, isOfMinter } = record
    const isFault = code !== undefined && code !== 'client_closed' && remedyOf(code, isOfMinter).fault !== 'app'
    const level = isFault ? 'warn' : 'info'
    if (!this.logger.isLevelEnabled(level)) return
    const isSuccess = record.code === undefined && record.status < 400
    if (isSuccess && (requests === 'errors' || (sample < 1 && clock.random() >= sample))) return
    if (!record.isAdmitted && code !== undefined && !this.#hasRoomFor(code, record.endedAt)) return
    this.#write(requestLine(record, level, this.#isoTime(record.endedAt), this.#instance))
  }

  /** Writes the line of a WebSocket that has ended. Its handshake had a line of a request. */
  tunnel(record: TunnelRecord, { durationMs, ...end }: TunnelEnd): void {
    const { requests, sample } = this.#volume
    if (requests === 'off') return
    const isClosed = end.reason === 'closed'
    if (isClosed && (requests === 'errors' || (sample < 1 && clock.random() >= sample))) return
    this.logger.info({ ...record, durationMs: Math.round(durationMs), ...end }, 'websocket ended')
  }

  /** In ISO 8601 and UTC. Read and formatted once in each millisecond of the monotonic clock, which shows `now`. */
  #isoTime(now: number): string {
    const ms = Math.floor(now)
    if (ms !== this.#time.ms) this.#time = { ms, text: new Date(clock.day()).toISOString() }
    return this.#time.text
  }

  /** False if the line of a refusal is to be left out. Then a line says so within a second. */
  #hasRoomFor(code: string, now: number): boolean {
    if (now >= this.#second.endsAt) this.#second = { endsAt: now + 1_000, lines: 0, codes: new Set() }
    const { codes } = this.#second
    if (++this.#second.lines <= MAX_REFUSALS_PER_SECOND || !codes.has(code)) {
      codes.add(code)
      return true
    }
    this.omittedLines++
    this.#newlyOmitted++
    this.#telling ??= clock.after(1_000, () => this.#tellOmitted())
    return false
  }

  #tellOmitted(): void {
    this.#telling?.cancel()
    this.#telling = undefined
    if (this.#newlyOmitted === 0) return
    this.logger.warn({ lines: this.#newlyOmitted }, 'lines of refused requests left out')
    this.#newlyOmitted = 0
  }

  /** Resolves when all lines are written or lost, after 500 ms at the latest. */
  async flush(): Promise<void> {
    this.#tellOmitted()
    await this.#destination.flush?.()
  }
}

/** One line of ASCII with the fields in this order. */
function requestLine(record: RequestRecord, level: 'info' | 'warn', time: string, instance: string): string {
  const { carriedAt, respondedAt } = record
  let line = `{"level":"${level}","time":"${time}"${instance},"msg":"request","requestId":${quoted(record.requestId)}`
  if (record.orgId !== undefined) line += `,"orgId":${quoted(record.orgId)}`
  if (record.caller !== undefined) line += `,"caller":${quoted(record.caller)}`
  line += `,"method":${quoted(record.method)},"path":${quoted(record.path.slice(0, MAX_PATH_CHARACTERS))},"status":${record.status}`
  line += `,"durationMs":${milliseconds(record.endedAt - record.startedAt)}`
  if (carriedAt !== undefined && respondedAt !== undefined) {
    line += `,"originMs":${milliseconds(respondedAt - carriedAt)}`
  }
  line += `,"token":"${record.token}","bytesIn":${record.bytesIn},"bytesOut":${record.bytesOut}`
  if (record.traceId !== undefined) line += `,"traceId":"${record.traceId}"`
  if (record.code !== undefined) line += `,"code":"${record.code}"`
  if (record.detail !== undefined) line += `,"detail":${quoted(record.detail)}`
  const reason = wasNotKept(record) ? NOT_KEPT : record.reason
  return reason === undefined ? `${line}}\n` : `${line},"reason":${quoted(reason)}}\n`
}

const NEEDS_ESCAPE = /[^\x20\x21\x23-\x5b\x5d-\x7e]/
const NOT_ASCII = /[^\x20-\x7e]/g

function quoted(text: string): string {
  return NEEDS_ESCAPE.test(text) ? JSON.stringify(text).replace(NOT_ASCII, escaped) : `"${text}"`
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
}

/** Three decimals, from integers: formatting a double costs several times as much. */
function milliseconds(value: number): string {
  const micros = Math.max(0, Math.round(value * 1_000))
  const rest = micros % 1_000
  const whole = (micros - rest) / 1_000
  if (rest === 0) return `${whole}`
  return `${whole}.${rest < 10 ? '00' : rest < 100 ? '0' : ''}${rest}`
}

/** A line of JSON as a line for people. */
function prettyLine(line: string): string {
  const { time, level, msg = '', ...rest }: Record<string, unknown> = JSON.parse(line)
  const pairs = Object.entries(rest).map(([name, value]) => ` ${name}=${JSON.stringify(value)}`)
  return `${String(time).slice(11, 23)} ${String(level).toUpperCase().padEnd(5)} ${msg}${pairs.join('')}\n`
}
