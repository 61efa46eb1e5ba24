/** Content that tells whose it is, and where in it one is. */

const BLOCK = 16
/** Whoever sends it and whoever compares it need the same. */
const made = new Map<string, Buffer>()

/** `length` octets that belong to `label`, of at most 7 characters. */
export function contentOf(label: string, length: number): Buffer {
  const known = made.get(label)
  if (known !== undefined && known.length >= length) return known.subarray(0, length)
  if (made.size > 1_000) made.clear()
  const blocks = Math.ceil(length / BLOCK)
  const bytes = Buffer.allocUnsafe(blocks * BLOCK)
  const name = label.padEnd(7, '.')
  for (let i = 0; i < blocks; i++) bytes.write(`${name}:${i.toString(36).padStart(7, '0')}\n`, i * BLOCK, 'latin1')
  made.set(label, bytes)
  return bytes.subarray(0, length)
}

/** In two chunks, without the last one. */
export function chunksOf(bytes: Buffer): Buffer[] {
  const middle = Math.ceil(bytes.length / 2)
  return [bytes.subarray(0, middle), bytes.subarray(middle)]
    .filter(({ length }) => length > 0)
    .map((part) => Buffer.concat([Buffer.from(`${part.length.toString(16)}\r\n`), part, Buffer.from('\r\n')]))
}

/** Compares content with what it should be, as it comes. */
export class ContentCheck {
  readonly #expected: Buffer
  bytes = 0
  /** Where it began to be another. */
  wrongAt: number | undefined
  readonly #started: string

  constructor(label: string, length: number) {
    this.#expected = contentOf(label, length)
    this.#started = label
  }

  push(bytes: Buffer): void {
    const expected = this.#expected.subarray(this.bytes, this.bytes + bytes.length)
    if (this.wrongAt === undefined && !expected.equals(bytes)) this.wrongAt = this.bytes
    this.bytes += bytes.length
  }

  get isWhole(): boolean {
    return this.bytes === this.#expected.length && this.wrongAt === undefined
  }

  toString(): string {
    const state = this.wrongAt === undefined ? '' : ` WRONG at ${this.wrongAt}`
    return `${this.#started} ${this.bytes}/${this.#expected.length}${state}`
  }
}
