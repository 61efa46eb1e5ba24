/** Collects log lines for a moment, and writes them to stdout together. */

import { constants, openSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { isatty } from 'node:tty'
import { SonicBoom } from 'sonic-boom'

/** A system call for each line would cost as much as the line itself. Half of what a pipe holds. */
const BATCH_CHARACTERS = 32 * 1024
const MAX_DELAY_MS = 50
/** If nobody reads stdout, this much is kept. Further lines are dropped and counted, and requests go on. */
const MAX_QUEUED_BYTES = 4 * 1024 * 1024
const RETRY_MS = 1_000
const FLUSH_TIMEOUT_MS = 500
const STDOUT = 1

export class StdoutOutput {
  /**
   * `minLength` 1 writes at once. With 0, `flush` would do nothing. It takes buffers: a string would be measured, and encoded
   * twice.
   */
  readonly #stream = new SonicBoom({
    fd: openStdout(),
    sync: false,
    contentMode: 'buffer',
    minLength: 1,
    maxLength: MAX_QUEUED_BYTES,
  })
  #lines = ''
  #timer: NodeJS.Timeout | undefined
  #retry: NodeJS.Timeout | undefined
  /** Since the start. */
  droppedLines = 0
  /** Monotonic milliseconds. */
  lastDropAt = Number.NEGATIVE_INFINITY

  constructor() {
    // A full disk, a reader that has gone: sonic-boom keeps the lines, but a full buffer makes it try no more by itself.
    this.#stream.on('error', () => {
      clearTimeout(this.#retry)
      this.#retry = setTimeout(() => this.#stream.flush(), RETRY_MS).unref()
    })
    this.#stream.on('drop', (lines: Buffer) => {
      this.lastDropAt = performance.now()
      this.droppedLines += lines.toString().split('\n').length - 1
    })
  }

  /** `line` ends with a newline. */
  write(line: string): void {
    this.#lines += line
    if (this.#lines.length >= BATCH_CHARACTERS) this.#writeBatch()
    else this.#timer ??= setTimeout(() => this.#writeBatch(), MAX_DELAY_MS).unref()
  }

  #writeBatch(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (this.#lines !== '') this.#stream.write(Buffer.from(this.#lines) as unknown as string)
    this.#lines = ''
  }

  /** Resolves when all lines are written, or cannot be, and after 500 ms at the latest. */
  async flush(): Promise<void> {
    this.#writeBatch()
    const settled = new Promise<void>((resolve) => this.#stream.flush(() => resolve()))
    await Promise.race([settled, sleep(FLUSH_TIMEOUT_MS)])
  }
}

/**
 * A descriptor whose writes never block. A write that blocks holds a thread of libuv's pool, and `process.exit` waits for
 * that thread: if nobody read stdout, the process would never end.
 */
function openStdout(): number {
  // Node makes a pipe or a socket non-blocking when `process.stdout` is first used. The listener is for a reader that goes.
  process.stdout.on('error', () => undefined)
  if (!isatty(STDOUT)) return STDOUT
  // A terminal is shared with other programs, which would notice. Opened once more, it is non-blocking for us alone.
  try {
    return openSync('/dev/fd/1', constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
  } catch {
    return STDOUT
  }
}
