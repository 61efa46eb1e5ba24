/** Collects log lines for a moment, and writes them to stdout together. Whatever becomes of stdout, nothing waits for it. */

import { constants, fstatSync, openSync, write } from 'node:fs'
import * as clock from '../clock.ts'

/** A system call for each line would cost as much as the line itself. Half of what a pipe holds. */
const BATCH_CHARACTERS = 32 * 1024
const MAX_DELAY_MS = 50
/** If nobody reads stdout, this much is kept. Further lines are dropped and counted, and requests go on. */
const MAX_WAITING_BYTES = 4 * 1024 * 1024
/** A pipe that was full may have room again soon. */
const FULL_RETRY_MS = 20
/** A full disk, a reader that has gone. */
const FAILED_RETRY_MS = 1_000
const FLUSH_TIMEOUT_MS = 500
/** A write that does not succeed for so long is told. */
const STUCK_MS = 2_000
const STDOUT = 1

/** The descriptor. Several outputs take turns, batch by batch, so that one with many lines leaves room for the others. */
export class Stdout {
  readonly #fd = openStdout()
  /** Those with batches that wait. The first has its turn. */
  readonly #outputs: StdoutOutput[] = []
  #isWriting = false
  /** The code of the error that the last write met, and the monotonic milliseconds when it began. */
  #failure: { readonly code: string; readonly at: number } | undefined

  /** The code of the error that keeps lines from being written. Undefined if all is well. */
  get problem(): string | undefined {
    const { code, at } = this.#failure ?? { at: Number.POSITIVE_INFINITY }
    return clock.now() - at > STUCK_MS ? code : undefined
  }

  /** Call it when `output` has a first batch. */
  add(output: StdoutOutput): void {
    this.#outputs.push(output)
    if (!this.#isWriting) this.#writeNext()
  }

  #writeNext(): void {
    const [output] = this.#outputs
    const batch = output?.firstBatch
    this.#isWriting = batch !== undefined
    if (output === undefined || batch === undefined) return
    write(this.#fd, batch, (error, written) => {
      if (error !== null) {
        this.#retry(error.code ?? 'unknown error')
        return
      }
      this.#failure = undefined
      // The rest of a batch goes first: it may begin within a line.
      if (output.consume(written)) {
        this.#outputs.shift()
        if (output.firstBatch !== undefined) this.#outputs.push(output)
      }
      this.#writeNext()
    })
  }

  #retry(code: string): void {
    this.#failure = { code, at: this.#failure?.at ?? clock.now() }
    const isFull = code === 'EAGAIN'
    if (!isFull) for (const output of this.#outputs) output.settle()
    clock.after(isFull ? FULL_RETRY_MS : FAILED_RETRY_MS, () => this.#writeNext())
  }
}

export class StdoutOutput {
  readonly #stdout: Stdout
  #lines = ''
  #batching: clock.Timer | undefined
  /** The oldest first. */
  #waiting: Buffer[] = []
  #waitingBytes = 0
  /** Called when all lines are written, or a write has failed. */
  #settled: (() => void)[] = []
  /** Since the start. */
  droppedLines = 0
  /** Monotonic milliseconds. */
  lastDropAt = Number.NEGATIVE_INFINITY

  constructor(stdout = new Stdout()) {
    this.#stdout = stdout
  }

  /** See `Stdout`. */
  get problem(): string | undefined {
    return this.#stdout.problem
  }

  /** `line` ends with a newline. */
  write(line: string): void {
    this.#lines += line
    if (this.#lines.length >= BATCH_CHARACTERS) this.#writeBatch()
    else this.#batching ??= clock.after(MAX_DELAY_MS, () => this.#writeBatch())
  }

  /** Resolves when all lines are written, or cannot be, and after 500 ms at the latest. */
  async flush(): Promise<void> {
    this.#writeBatch()
    if (this.#waiting.length === 0) return
    const settled = new Promise<void>((resolve) => this.#settled.push(resolve))
    await Promise.race([settled, clock.sleep(FLUSH_TIMEOUT_MS)])
  }

  get firstBatch(): Buffer | undefined {
    return this.#waiting[0]
  }

  /** Takes the bytes that are written off the first batch. Returns whether that is all of it. */
  consume(written: number): boolean {
    const [first] = this.#waiting
    if (first === undefined) return true
    this.#waitingBytes -= written
    if (written < first.length) this.#waiting[0] = first.subarray(written)
    else this.#waiting.shift()
    if (this.#waiting.length === 0) this.settle()
    return written >= first.length
  }

  settle(): void {
    for (const resolve of this.#settled.splice(0)) resolve()
  }

  #writeBatch(): void {
    this.#batching?.cancel()
    this.#batching = undefined
    if (this.#lines === '') return
    const bytes = Buffer.from(this.#lines)
    if (this.#waitingBytes + bytes.length > MAX_WAITING_BYTES) {
      this.lastDropAt = clock.now()
      this.droppedLines += this.#lines.split('\n').length - 1
    } else {
      this.#waiting.push(bytes)
      this.#waitingBytes += bytes.length
      if (this.#waiting.length === 1) this.#stdout.add(this)
    }
    this.#lines = ''
  }
}

/**
 * A descriptor whose writes never block. A write that blocks holds a thread of libuv's pool, and `process.exit` waits for
 * that thread: if nobody read stdout, the process would never end.
 */
function openStdout(): number {
  const kind = fstatSync(STDOUT)
  if (kind.isFile()) return STDOUT
  // Other programs share a pipe and a terminal, and the mode with it: one would notice ours, or make it block again. Opened
  // once more, it is ours alone. A socket cannot be opened, nor what belongs to another user.
  try {
    return openSync('/dev/fd/1', constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
  } catch {
    // Node makes it non-blocking when `process.stdout` is first used. The listener is for a reader that goes.
    process.stdout.on('error', () => undefined)
    return STDOUT
  }
}
