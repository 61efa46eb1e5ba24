/** Collects log lines for a moment, and writes them to stdout together. */

import { constants, openSync, write } from 'node:fs'
import { isatty } from 'node:tty'

/** A system call for each line would cost as much as the line itself. */
const BATCH_BYTES = 16 * 1024
const MAX_DELAY_MS = 50
/** If nobody reads stdout, this much is kept. Further lines are lost, and requests go on. */
const MAX_QUEUED_BYTES = 4 * 1024 * 1024
const RETRY_MS = 100
const FLUSH_TIMEOUT_MS = 500
const STDOUT = 1

export class StdoutOutput {
  readonly #descriptor = openStdout()
  #batch = Buffer.allocUnsafeSlow(BATCH_BYTES)
  #batchBytes = 0
  #timer: NodeJS.Timeout | undefined
  /** Handed over and not written to any more. The first one is being written. */
  readonly #queue: Buffer[] = []
  #queuedBytes = 0
  readonly #waiting = new Set<() => void>()

  /** True on a terminal, unless `NO_COLOR` or `TERM` says otherwise. */
  get hasColors(): boolean {
    return isatty(STDOUT) && process.stdout.hasColors()
  }

  /** `line` ends with a newline. */
  write(line: string): void {
    const lengthBytes = Buffer.byteLength(line)
    if (this.#batchBytes + lengthBytes > BATCH_BYTES) this.#closeBatch()
    if (lengthBytes > BATCH_BYTES) {
      this.#enqueue(Buffer.from(line))
      return
    }
    this.#batchBytes += this.#batch.write(line, this.#batchBytes)
    this.#timer ??= setTimeout(() => this.#closeBatch(), MAX_DELAY_MS).unref()
  }

  /** Resolves when all lines are written or lost, or after 500 ms. */
  flush(): Promise<void> {
    this.#closeBatch()
    if (this.#queue.length === 0) return Promise.resolve()
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer)
        this.#waiting.delete(done)
        resolve()
      }
      const timer = setTimeout(done, FLUSH_TIMEOUT_MS)
      this.#waiting.add(done)
    })
  }

  #closeBatch(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (this.#batchBytes === 0) return
    const lines = this.#batch.subarray(0, this.#batchBytes)
    this.#batch = Buffer.allocUnsafeSlow(BATCH_BYTES)
    this.#batchBytes = 0
    this.#enqueue(lines)
  }

  #enqueue(lines: Buffer): void {
    if (this.#queuedBytes + lines.length > MAX_QUEUED_BYTES) return
    this.#queue.push(lines)
    this.#queuedBytes += lines.length
    if (this.#queue.length === 1) this.#writeFirst()
  }

  #writeFirst(): void {
    const [lines] = this.#queue
    if (lines === undefined) {
      for (const done of this.#waiting) done()
      return
    }
    write(this.#descriptor, lines, (error, writtenBytes) => {
      if (error?.code === 'EAGAIN') setTimeout(() => this.#writeFirst(), RETRY_MS).unref()
      // A full disk, a reader that has gone: these lines are lost. The next ones are tried all the same.
      else this.#consume(lines, error === null ? writtenBytes : lines.length)
    })
  }

  #consume(lines: Buffer, bytes: number): void {
    this.#queuedBytes -= bytes
    if (bytes < lines.length) this.#queue[0] = lines.subarray(bytes)
    else this.#queue.shift()
    this.#writeFirst()
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
