/** Writes the heads of messages (RFC 9112 §2.1), as text in latin1. */

/** A final response, or a 101, without framing fields and connection options. */
export interface HeadToWrite {
  readonly status: number
  readonly reason: string
  /** Flat list of names and values, which the parser has let pass. */
  readonly fields: readonly string[]
  readonly hasDate: boolean
}

const UPGRADE_REQUIRED = 426

/** The lines of a flat list, each with its end. */
export function fieldLines(fields: readonly string[]): string {
  let text = ''
  for (let i = 0; i + 1 < fields.length; i += 2) text += `${fields[i]}: ${fields[i + 1]}\r\n`
  return text
}

/** Adds a `Date` if there is none (RFC 9110 §6.6.1), and `moreLines`. */
export function responseHeadText(head: HeadToWrite, isChunked: boolean, date: HttpDate, moreLines: string): string {
  let text = `HTTP/1.1 ${head.status} ${head.reason}\r\n${fieldLines(head.fields)}`
  if (!head.hasDate) text += `Date: ${date.now}\r\n`
  if (isChunked) text += 'Transfer-Encoding: chunked\r\n'
  // An `Upgrade` must be named by `Connection` (RFC 9110 §7.8).
  if (head.status === UPGRADE_REQUIRED) text += 'Connection: upgrade\r\n'
  return `${text}${moreLines}\r\n`
}

/** The time of day as `Date` has it (RFC 9110 §5.6.7). Rendered once a second. */
export class HttpDate {
  #second = Number.NaN
  #text = ''

  get now(): string {
    const second = Math.floor(Date.now() / 1_000)
    if (second !== this.#second) {
      this.#second = second
      this.#text = new Date(second * 1_000).toUTCString()
    }
    return this.#text
  }
}
