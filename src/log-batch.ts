/** Lines of the log on their way out: laid into one buffer, and handed on together. */

/** Handed on when this is full, or after the delay: a call of the kernel for each line would cost as much as the line. */
const BATCH_BYTES = 16 * 1024
const MAX_DELAY_MS = 50

export class LineBatch {
  readonly #handOn: (lines: Buffer) => void
  #buffer = Buffer.allocUnsafeSlow(BATCH_BYTES)
  #length = 0
  #timer: NodeJS.Timeout | undefined

  /** What is handed on is not written to any more. */
  constructor(handOn: (lines: Buffer) => void) {
    this.#handOn = handOn
  }

  /** `line` ends with a newline, and holds nothing but ASCII. */
  addAscii(line: string): void {
    if (!this.#makeRoom(line.length)) this.#handOn(Buffer.from(line, 'latin1'))
    else this.#length += this.#buffer.latin1Write(line, this.#length, line.length)
  }

  /** `line` ends with a newline. */
  add(line: string): void {
    const lengthBytes = Buffer.byteLength(line)
    if (!this.#makeRoom(lengthBytes)) this.#handOn(Buffer.from(line))
    else this.#length += this.#buffer.write(line, this.#length)
  }

  /** False where there can be no room: what came before has been handed on then. */
  #makeRoom(lengthBytes: number): boolean {
    if (this.#length + lengthBytes > BATCH_BYTES) this.flush()
    this.#timer ??= setTimeout(() => this.flush(), MAX_DELAY_MS).unref()
    return lengthBytes <= BATCH_BYTES
  }

  flush(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (this.#length === 0) return
    const lines = this.#buffer.subarray(0, this.#length)
    this.#buffer = Buffer.allocUnsafeSlow(BATCH_BYTES)
    this.#length = 0
    this.#handOn(lines)
  }
}
