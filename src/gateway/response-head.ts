/** The head of a response for the client: takes from the service's what may go on. */

import { namedByConnection, withoutFields } from '../http1/field-list.ts'
import type { ReceivedResponse } from '../http1/response-parser.ts'
import { cookieThrough } from './cookies.ts'
import { type ResponseFieldKind, responseFieldKind } from './fields.ts'
import { linksThrough, targetOfLocation } from './targets.ts'

export class ResponseHead {
  readonly status: number
  readonly reason: string
  /** A flat list of names and values that go on to the client, with order, case and duplicates as received. */
  fields: string[] = []
  /** In octets; undefined if the content is chunked or ends with the connection. */
  readonly contentLength: number | undefined
  /** False if no content follows, whatever the fields say (RFC 9112 §6.3). */
  readonly hasContent: boolean
  hasDate = false
  /** Its `Vary` names the org, or everything. */
  #variesByOrg = false
  #namesTargets = false
  #hasCookies = false

  constructor({ status, reason, contentLength, hasContent, rawFields }: ReceivedResponse) {
    this.status = status
    this.reason = reason
    this.contentLength = contentLength
    this.hasContent = hasContent
    let connection = ''
    for (let i = 0; i + 1 < rawFields.length; i += 2) {
      const name = rawFields[i] as string
      const value = rawFields[i + 1] as string
      const kind = responseFieldKind(name)
      if (kind === 'plain') this.fields.push(name, value)
      else if (kind === 'connection') connection += connection === '' ? value : `,${value}`
      else if (kind !== 'dropped') this.#take(kind, name, value)
    }
    if (connection !== '') this.#obeyConnection(connection)
    // They must not state one (RFC 9110 §8.6).
    if (status === NO_CONTENT || status === SWITCHING_PROTOCOLS) this.fields = withoutFields(this.fields, LENGTH_NAME)
    // The token tells orgs apart for the service, but caches of clients never see it. They would serve the response of one org
    // to another (RFC 9111 §4.1).
    if (!this.#variesByOrg && status !== SWITCHING_PROTOCOLS) this.fields.push('Vary', 'X-Org-Id')
  }

  /** Fields that mean something to this gateway. */
  #take(kind: ResponseFieldKind, name: string, value: string): void {
    let passed = value
    switch (kind) {
      case 'content-length':
        passed = String(this.contentLength) // some clients read a leading zero as octal
        break
      case 'date':
        this.hasDate = true
        break
      case 'location':
      case 'content-location':
      case 'link':
        this.#namesTargets = true
        break
      case 'set-cookie':
        this.#hasCookies = true
        break
      case 'upgrade':
        // Hop-by-hop, but a 426 must say which protocol is required (RFC 9110 §15.5.22).
        if (this.status !== UPGRADE_REQUIRED) return
        break
      case 'vary':
        if (value === '') break
        if (!this.#variesByOrg && !VARIES_BY_ORG.test(value)) passed = `${value}, X-Org-Id`
        this.#variesByOrg = true
        break
      case 'proxy-status':
        passed = withoutOurStatus(value)
        if (passed === '') return
    }
    this.fields.push(name, passed)
  }

  /**
   * A client that follows a location or a link of the service below `baseUrl` stays behind the proxy. Links get the scheme and
   * host of its request, because clients take them as they are. With an empty `host`, a path has to do.
   */
  relocate(baseUrl: URL, scheme: string, host: string): void {
    if (!this.#namesTargets) return
    const self = host === '' ? '' : `${scheme}://${host}`
    this.fields = this.fields.map((value, i, all) => {
      const name = i % 2 === 1 ? (all[i - 1] ?? '') : ''
      if (LOCATION.test(name)) return targetOfLocation(value, baseUrl) ?? value
      return LINK.test(name) ? linksThrough(self, value, baseUrl) : value
    })
  }

  /** Cookies come back to the proxy. */
  returnCookies(baseUrl: URL, scheme: 'http' | 'https'): void {
    if (!this.#hasCookies) return
    this.fields = this.fields.map((value, i, all) =>
      i % 2 === 1 && SET_COOKIE.test(all[i - 1] ?? '') ? cookieThrough(value, baseUrl, scheme) : value,
    )
  }

  #obeyConnection(options: string): void {
    const named = namedByConnection(options)
    if (named === undefined) return
    if (this.status === UPGRADE_REQUIRED) named.delete('upgrade')
    named.delete('content-length') // the length belongs to the message, even if `Connection` names it
    this.fields = withoutFields(this.fields, named)
    if (named.has('date')) this.hasDate = false
    if (named.has('vary')) this.#variesByOrg = false
  }
}

const SWITCHING_PROTOCOLS = 101
const NO_CONTENT = 204
const UPGRADE_REQUIRED = 426

const LENGTH_NAME: ReadonlySet<string> = new Set(['content-length'])
const LOCATION = /^(?:content-)?location$/i
const LINK = /^link$/i
const SET_COOKIE = /^set-cookie$/i
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
