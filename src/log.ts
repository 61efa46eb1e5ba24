/**
 * Logs: JSON lines on stdout. pino owns level, format and destination; the request line, the dearest single thing on the
 * request path, is built by hand from an allow-list of fields and given to pino's destination as it is.
 */

import pino, { type DestinationStream, type Logger } from 'pino'
import type { RequestRecord } from './gateway/request-record.ts'
import { LineBatch } from './log-batch.ts'
import { prettyLine } from './log-pretty.ts'

export type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal' | 'silent'

export interface LogOptions {
  readonly level: LogLevel
  readonly requests: 'all' | 'errors' | 'off'
  readonly format: 'json' | 'pretty'
  /** Where lines go; stdout if left out. */
  readonly destination?: DestinationStream | undefined
}

/** With a reader that does not read, lines beyond this are dropped and requests go on. */
const MAX_BUFFERED_BYTES = 4 * 1024 * 1024
const FLUSH_TIMEOUT_MS = 500
const LF = 0x0a

/** Their status is of the 5xx, and still the client's doing. */
const CLIENT_FAULTS: ReadonlySet<string> = new Set(['http_version_refused', 'proxy_loop_detected'])

export interface Log {
  readonly logger: Logger
  /** Writes the line of a request that has ended. */
  request(record: RequestRecord): void
  /** Lines lost to a reader that did not read. */
  readonly droppedLines: number
  /** Resolves when what was logged is written, or with `false` where nobody takes it. */
  flush(): Promise<boolean>
  /** For the end of the process: as `flush`, but what nobody takes is lost, and nothing more is logged. */
  end(): Promise<void>
}

export function openLog(options: LogOptions): Log {
  const sink = options.destination === undefined ? openStdout() : fixed(options.destination)
  const isPretty = options.format === 'pretty'
  const stream = isPretty ? prettied(sink.stream) : sink.stream
  const writeLine = isPretty ? (line: string) => stream.write(line) : sink.writeAscii
  const logger = pino(
    {
      level: options.level,
      base: null,
      timestamp: () => `,"time":"${isoTime(Date.now())}"`,
      formatters: { level: (label) => ({ level: label }) },
    },
    stream,
  )
  return {
    logger,
    request: options.requests === 'off' ? () => undefined : requestWriter(options, logger, writeLine),
    get droppedLines() {
      return sink.droppedLines()
    },
    flush: sink.flush,
    end: sink.end,
  }
}

function requestWriter(options: LogOptions, logger: Logger, write: (line: string) => void) {
  const isInfoEnabled = logger.isLevelEnabled('info')
  const isWarnEnabled = logger.isLevelEnabled('warn')
  return (record: RequestRecord): void => {
    const isFault = record.code !== undefined && record.status >= 500 && !CLIENT_FAULTS.has(record.code)
    if (isFault ? !isWarnEnabled : !isInfoEnabled) return
    if (options.requests === 'errors' && record.code === undefined && record.status < 400) return
    write(requestLine(record, isFault ? 'warn' : 'info', Date.now()))
  }
}

/** One line of ASCII, its fields in this order; `now` in milliseconds of the epoch. */
export function requestLine(record: RequestRecord, level: 'info' | 'warn', now: number): string {
  const { dispatchedAt, respondedAt } = record
  let line = `{"level":"${level}","time":"${isoTime(now)}","msg":"request","requestId":${quoted(record.requestId)}`
  if (record.orgId !== undefined) line += `,"orgId":${quoted(record.orgId)}`
  line += `,"method":${quoted(record.method)},"path":${quoted(record.path)},"status":${record.status}`
  line += `,"durationMs":${milliseconds(record.endedAt - record.startedAt)}`
  if (dispatchedAt !== undefined && respondedAt !== undefined) {
    line += `,"originMs":${milliseconds(respondedAt - dispatchedAt)}`
  }
  line += `,"token":"${record.token}","bytesIn":${record.bytesIn},"bytesOut":${record.bytesOut}`
  return record.code === undefined ? `${line}}\n` : `${line},"code":"${record.code}"}\n`
}

const NEEDS_ESCAPE = /[^\x20\x21\x23-\x5b\x5d-\x7e]/
const NOT_ASCII = /[^\x20-\x7e]/g

function quoted(text: string): string {
  return NEEDS_ESCAPE.test(text) ? JSON.stringify(text).replace(NOT_ASCII, escaped) : `"${text}"`
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
}

/** Three decimals, by integers: formatting a double costs several times as much. */
function milliseconds(value: number): string {
  const micros = Math.max(0, Math.round(value * 1_000))
  const rest = micros % 1_000
  const whole = (micros - rest) / 1_000
  if (rest === 0) return `${whole}`
  return `${whole}.${rest < 10 ? '00' : rest < 100 ? '0' : ''}${rest}`
}

let second = Number.NaN
let secondText = ''

/** ISO 8601 in UTC; the part up to the second is made once a second. */
function isoTime(now: number): string {
  const ms = now % 1_000
  if (now - ms !== second) {
    second = now - ms
    secondText = new Date(second).toISOString().slice(0, 20)
  }
  return `${secondText}${ms < 10 ? '00' : ms < 100 ? '0' : ''}${ms}Z`
}

interface Sink {
  readonly stream: DestinationStream
  /** The same for a line of nothing but ASCII. */
  writeAscii(line: string): void
  droppedLines(): number
  flush(): Promise<boolean>
  end(): Promise<void>
}

function openStdout(): Sink {
  const stdout = pino.destination({
    dest: 1,
    sync: false,
    maxLength: MAX_BUFFERED_BYTES,
    minLength: 1, // with none, its `flush` does not wait
    contentMode: 'buffer',
  } as Parameters<typeof pino.destination>[0])
  const batch = new LineBatch((lines) => stdout.write(lines as unknown as string))
  let dropped = 0
  stdout.on('drop', (lines: Buffer) => {
    dropped += newlinesIn(lines)
  })
  stdout.on('error', () => undefined) // nobody reads any more: the requests matter, not their lines
  const flush = () =>
    new Promise<boolean>((resolve) => {
      batch.flush()
      const timer = setTimeout(() => resolve(false), FLUSH_TIMEOUT_MS)
      stdout.flush(() => {
        clearTimeout(timer)
        resolve(true)
      })
    })
  return {
    stream: { write: (line) => batch.add(line) },
    writeAscii: (line) => batch.addAscii(line),
    droppedLines: () => dropped,
    flush,
    end: async () => {
      // Left open, it would be flushed once more at exit, for as long as nobody reads.
      if (!(await flush())) stdout.destroy()
    },
  }
}

function newlinesIn(lines: Buffer): number {
  let count = 0
  for (let at = lines.indexOf(LF); at !== -1; at = lines.indexOf(LF, at + 1)) count++
  return count
}

function fixed(stream: DestinationStream): Sink {
  const writeAscii = (line: string) => void stream.write(line)
  return { stream, writeAscii, droppedLines: () => 0, flush: () => Promise.resolve(true), end: () => Promise.resolve() }
}

function prettied(stream: DestinationStream): DestinationStream {
  return { write: (line: string) => stream.write(prettyLine(line)) }
}
