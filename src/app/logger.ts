/** Lines of JSON with a level, a time, their fields and a message. */

const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const

export type LogLevel = (typeof LEVELS)[number]

type Line = readonly [message: string] | readonly [fields: Readonly<Record<string, unknown>>, message: string]

export class Logger {
  readonly #write: (line: string) => void
  #least = 0

  /** `write` gets each line with its newline. */
  constructor(level: LogLevel, write: (line: string) => void) {
    this.#write = write
    this.level = level
  }

  /** Lines below it are not written. */
  set level(level: LogLevel) {
    this.#least = LEVELS.indexOf(level)
  }

  isEnabled(level: Exclude<LogLevel, 'silent'>): boolean {
    return LEVELS.indexOf(level) >= this.#least
  }

  debug(...line: Line): void {
    this.#log('debug', line)
  }

  info(...line: Line): void {
    this.#log('info', line)
  }

  warn(...line: Line): void {
    this.#log('warn', line)
  }

  error(...line: Line): void {
    this.#log('error', line)
  }

  fatal(...line: Line): void {
    this.#log('fatal', line)
  }

  #log(level: Exclude<LogLevel, 'silent'>, line: Line): void {
    if (!this.isEnabled(level)) return
    const [fields, msg] = line.length === 1 ? [{}, line[0]] : line
    this.#write(`${JSON.stringify({ level, time: new Date().toISOString(), ...fields, msg })}\n`)
  }
}
