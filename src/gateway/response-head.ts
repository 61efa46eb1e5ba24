/** The head of a response for the client: takes from the service's what may go on. What goes on unchanged is copied in one piece. */

import assert from 'node:assert/strict'
import { namedByConnection } from '../http1/field-list.ts'
import { NO_CONTENT, type ReceivedResponse, SWITCHING_PROTOCOLS } from '../http1/response-parser.ts'
import { type ResponseFieldKind, responseFieldKind } from './fields.ts'

/** How a client that goes through this proxy has to get what the service names. */
export interface NamesForClient {
  location(value: string): string
  links(value: string): string
  cookie(value: string): string
}

export class ResponseHead {
  readonly status: number
  readonly reason: string
  /** Of the fields that go on to the client, with order, case and duplicates as received. */
  lines = ''
  /** In octets; undefined if the content is chunked or ends with the connection. */
  readonly contentLength: number | undefined
  /** False if no content follows, whatever the fields say (RFC 9112 §6.3). */
  readonly hasContent: boolean
  hasDate = false
  /** Its `Vary` names the org, or everything. */
  #variesByOrg = false
  readonly #isSwitch: boolean
  readonly #names: NamesForClient

  constructor(received: ReceivedResponse, names: NamesForClient) {
    const { status, reason, contentLength, hasContent } = received
    this.status = status
    this.reason = reason
    this.contentLength = contentLength
    this.hasContent = hasContent
    this.#isSwitch = status === SWITCHING_PROTOCOLS
    this.#names = names
    const named = this.#namedIn(this.#copy(received))
    if (named !== undefined) this.#copy(received, named)
    // The token tells orgs apart for the service, but caches of clients never see it. They would serve the response of one org
    // to another (RFC 9111 §4.1).
    if (!this.#variesByOrg && !this.#isSwitch) this.lines += 'Vary: X-Org-Id\r\n'
  }

  /** Makes the lines, without the fields that are `dropped`. Returns the options of `Connection`. */
  #copy({ rawFields, lines }: ReceivedResponse, dropped?: ReadonlySet<string>): string {
    this.hasDate = false
    this.#variesByOrg = false
    let connection = ''
    let text = ''
    // Of the received lines, those between go on as they are.
    let from = 0
    let at = 0
    for (let i = 0; i + 1 < rawFields.length; i += 2) {
      const name = rawFields[i] as string
      const value = rawFields[i + 1] as string
      const kind = responseFieldKind(name)
      const end = at + name.length + value.length + BESIDE_FIELD
      if (kind === 'connection') connection += connection === '' ? value : `,${value}`
      const isDropped = kind === 'connection' || kind === 'dropped' || dropped?.has(name.toLowerCase()) === true
      const passed = isDropped ? undefined : kind === 'plain' ? value : this.#interpret(kind, value)
      if (passed !== value) {
        text += lines.slice(from, at)
        if (passed !== undefined) text += `${name}: ${passed}\r\n`
        from = end
      }
      at = end
    }
    assert(at === lines.length)
    this.lines = text + lines.slice(from)
    return connection
  }

  /** Fields that mean something to this gateway. Returns the value that goes on; undefined if the field does not. */
  #interpret(kind: ResponseFieldKind, value: string): string | undefined {
    switch (kind) {
      case 'content-length':
        // They must not state one (RFC 9110 §8.6).
        if (this.status === NO_CONTENT || this.#isSwitch) return undefined
        return String(this.contentLength) // some clients read a leading zero as octal
      case 'date':
        this.hasDate = true
        return value
      case 'location':
      case 'content-location':
        return this.#isSwitch ? value : this.#names.location(value)
      case 'link':
        return this.#isSwitch ? value : this.#names.links(value)
      case 'set-cookie':
        return this.#names.cookie(value)
      case 'upgrade':
        // Hop-by-hop, but a 426 must say which protocol is required (RFC 9110 §15.5.22).
        return this.status === UPGRADE_REQUIRED ? value : undefined
      case 'vary': {
        if (value === '') return value
        const isNew = !this.#variesByOrg && !VARIES_BY_ORG.test(value)
        this.#variesByOrg = true
        return isNew ? `${value}, X-Org-Id` : value
      }
      case 'proxy-status':
        return withoutOurStatus(value) || undefined
      default:
        return value
    }
  }

  /** The fields that `Connection` takes away. */
  #namedIn(options: string): Set<string> | undefined {
    const named = namedByConnection(options)
    if (this.status === UPGRADE_REQUIRED) named?.delete('upgrade')
    named?.delete('content-length') // the length belongs to the message, even if `Connection` names it
    return named
  }
}

/** Of a line, the octets beside name and value: a colon, a blank and the end. */
const BESIDE_FIELD = 4

const UPGRADE_REQUIRED = 426

const VARIES_BY_ORG = /(?:^|,)[\t ]*(?:\*|x-org-id)[\t ]*(?:,|$)/i

const OUR_STATUS = /^\s*"?org-access-proxy"?\s*(?:;|$)/i

/** A `Proxy-Status` without the members that speak for this proxy: clients tell our errors by them (RFC 9209 §2). */
function withoutOurStatus(value: string): string {
  const others: string[] = []
  let start = 0
  let isQuoted = false
  for (let i = 0; i <= value.length; i++) {
    const character = value[i] ?? ','
    if (character === '"') isQuoted = !isQuoted
    else if (isQuoted) i += character === '\\' ? 1 : 0
    else if (character === ',') {
      const member = value.slice(start, i)
      if (member.trim() !== '' && !OUR_STATUS.test(member)) others.push(member.trim())
      start = i + 1
    }
  }
  // Where a quoted string does not end, a client may see other members than we do, also in the next field (RFC 9651 §4.2.5).
  return isQuoted ? '' : others.join(', ')
}
