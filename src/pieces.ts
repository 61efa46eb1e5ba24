/** Bytes that came in pieces of any size. Small pieces are joined, so that all cost at most about twice what they hold. */

/** A smaller piece costs more beside its bytes (some 200 octets, or the read that it came with) than its copy. */
const SMALL_BYTES = 4 * 1024

export class Pieces {
  readonly #whole: Buffer[] = []
  /** The last piece, while it has room: its first `#filled` octets are used. */
  #open: Buffer | undefined
  #filled = 0
  bytes = 0

  add(piece: Buffer): void {
    const costs = piece.buffer.byteLength
    // The only piece of most small content came with its head.
    const isFirst = this.bytes === 0 && costs <= 2 * SMALL_BYTES
    this.bytes += piece.length
    if (isFirst || (piece.length >= SMALL_BYTES && costs <= 2 * piece.length)) {
      this.#close()
      this.#whole.push(piece)
    } else this.#join(piece)
  }

  #join(piece: Buffer): void {
    const open = this.#open
    if (open !== undefined && open.length - this.#filled >= piece.length) {
      this.#filled += piece.copy(open, this.#filled)
      return
    }
    this.#close()
    this.#open = Buffer.allocUnsafeSlow(Math.max(piece.length, Math.min(this.bytes, SMALL_BYTES)))
    this.#filled = piece.copy(this.#open)
  }

  #close(): void {
    if (this.#open !== undefined) this.#whole.push(this.#open.subarray(0, this.#filled))
    this.#open = undefined
  }

  /** The pieces, which stay. */
  list(): readonly Buffer[] {
    this.#close()
    return this.#whole
  }

  joined(): Buffer {
    const pieces = this.list()
    const [first] = pieces
    return first !== undefined && pieces.length === 1 ? first : Buffer.concat(pieces)
  }

  /** What is here is gone. */
  clear(): void {
    this.#whole.length = 0
    this.#open = undefined
    this.bytes = 0
  }
}
