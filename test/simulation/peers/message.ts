/** Reads the HTTP/1.1 messages of the proxy, as they come. It is strict: the proxy writes no doubtful ones. */

export interface Head {
  /** Request line or status line. */
  readonly start: readonly string[]
  /** Names are in lower case. */
  readonly fields: ReadonlyMap<string, string>
}

export interface MessageEvents {
  /** Returns true if no content follows, whatever the fields say. */
  head(head: Head): boolean
  content(bytes: Buffer): void
  /** It is whole. */
  end(): void
  /** Bytes behind an upgrade. */
  other(bytes: Buffer): void
}

type State = 'head' | 'length' | 'chunk size' | 'chunk' | 'behind chunk' | 'trailers' | 'until the end' | 'other'

const CRLF2 = Buffer.from('\r\n\r\n')

export class MessageReader {
  readonly #events: MessageEvents
  readonly #isServer: boolean
  #state: State = 'head'
  #bytes: Buffer = Buffer.alloc(0)
  #left = 0
  #pushedBytes = 0
  /** Of the head that is told: where it began, among all octets. */
  startAt = 0

  constructor(events: MessageEvents, isServer: boolean) {
    this.#events = events
    this.#isServer = isServer
  }

  /** Nothing of a message has come, or all of it. */
  get isBetween(): boolean {
    return this.#state === 'head' && this.#bytes.length === 0
  }

  /** The rest belongs to another protocol. */
  switch(): void {
    this.#state = 'other'
  }

  push(bytes: Buffer): void {
    this.#pushedBytes += bytes.length
    this.#bytes = this.#bytes.length === 0 ? bytes : Buffer.concat([this.#bytes, bytes])
    while (this.#step());
  }

  /** The connection has ended, without a reset. */
  finish(): void {
    if (this.#state === 'until the end') this.#end()
  }

  #step(): boolean {
    const bytes = this.#bytes
    switch (this.#state) {
      case 'head':
        return this.#readHead()
      case 'length':
      case 'chunk': {
        if (bytes.length === 0) return false
        const part = bytes.subarray(0, this.#left)
        this.#left -= part.length
        this.#bytes = bytes.subarray(part.length)
        this.#events.content(part)
        if (this.#left > 0) return false
        if (this.#state === 'length') this.#end()
        else this.#state = 'behind chunk'
        return true
      }
      case 'behind chunk':
        if (bytes.length < 2) return false
        if (bytes.toString('latin1', 0, 2) !== '\r\n') throw new Error('no CRLF behind a chunk')
        this.#bytes = bytes.subarray(2)
        this.#state = 'chunk size'
        return true
      case 'chunk size': {
        const at = bytes.indexOf('\r\n')
        if (at === -1) return false
        const text = bytes.toString('latin1', 0, at)
        if (!/^[0-9a-f]+$/i.test(text)) throw new Error(`chunk size ${JSON.stringify(text)}`)
        this.#bytes = bytes.subarray(at + 2)
        this.#left = Number.parseInt(text, 16)
        this.#state = this.#left === 0 ? 'trailers' : 'chunk'
        return true
      }
      case 'trailers':
        if (bytes.length < 2) return false
        if (bytes.toString('latin1', 0, 2) !== '\r\n') throw new Error('trailers')
        this.#bytes = bytes.subarray(2)
        this.#end()
        return true
      case 'until the end':
        this.#bytes = bytes.subarray(bytes.length)
        if (bytes.length > 0) this.#events.content(bytes)
        return false
      case 'other':
        this.#bytes = bytes.subarray(bytes.length)
        if (bytes.length > 0) this.#events.other(bytes)
        return false
    }
  }

  #readHead(): boolean {
    const at = this.#bytes.indexOf(CRLF2)
    if (at === -1) return false
    this.startAt = this.#pushedBytes - this.#bytes.length
    const [first = '', ...lines] = this.#bytes.toString('latin1', 0, at).split('\r\n')
    this.#bytes = this.#bytes.subarray(at + 4)
    const fields = new Map<string, string>()
    for (const line of lines) {
      const colon = line.indexOf(':')
      const name = line.slice(0, colon).toLowerCase()
      fields.set(
        name,
        fields.has(name) ? `${fields.get(name)}, ${line.slice(colon + 1).trim()}` : line.slice(colon + 1).trim(),
      )
    }
    const start = first.split(' ')
    const status = Number(start[1])
    const isInterim = !this.#isServer && status < 200 && status !== 101
    const length = fields.get('content-length')
    this.#state = 'head'
    if (isInterim) {
      this.#events.head({ start, fields })
      return true
    }
    if (fields.get('transfer-encoding') === 'chunked') this.#state = 'chunk size'
    else if (length !== undefined) {
      this.#left = Number(length)
      this.#state = 'length'
    } else if (!this.#isServer) this.#state = 'until the end'
    const hasNoContent = this.#events.head({ start, fields })
    // `head` may have switched to another protocol.
    if ((this.#state as State) === 'other') return true
    const isEmpty = this.#state === 'head' || (this.#state === 'length' && this.#left === 0)
    if (hasNoContent || isEmpty) this.#end()
    return true
  }

  #end(): void {
    this.#state = 'head'
    this.#events.end()
  }
}
