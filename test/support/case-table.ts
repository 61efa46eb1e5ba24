/**
 * Raw requests as rows of a table, sent through real sockets to one proxy with one service. Every row checks that the proxy
 * still works, that the service received no more than the row says, that each request there has exactly the token of its
 * Org, and that no secret got out.
 */

import { expect, test } from 'vitest'
import { type Canaries, canariesOf } from './canaries.ts'
import type { OriginRequest } from './origin-connection.ts'
import { fieldOf, problemOf, RawClient, type RawResponse, request } from './raw-client.ts'
import type { Service, ServiceOptions } from './service.ts'
import { type ProxySettings, type ProxyUnderTest, startBothForFile } from './start-proxy.ts'
import type { Mint } from './token-endpoint.ts'

export interface Case {
  /** For `test.each` alone. */
  readonly name?: string
  /**
   * Sent as latin1. `{org}` and `{other}` stand for new Org ids, so that each mint is counted, `{port}` for the port of the
   * proxy, `{length}` and `{size}` for the octets of `content`, decimal and hexadecimal.
   */
  readonly send: string
  /** Of the first response; 200 by default. */
  readonly status?: number
  readonly code?: string
  /** The requests at the origin, as `METHOD target`. By default, that of a 200 has both as they were sent, and others are none. */
  readonly forwards?: readonly string[]
  /** The content of the one forwarded request. */
  readonly content?: string
  /** The fault is in the content: the head may reach the origin, but no request that looks complete. */
  readonly breaksInside?: boolean
  /** Further ids that the row uses. */
  readonly orgs?: readonly string[]
  /** Number of responses to the bytes; one by default. */
  readonly responses?: number
  /** The connection must close. */
  readonly closes?: boolean
  /** Further assertions. */
  readonly also?: (seen: Seen) => void
}

/** The outcome of one row. */
export interface Seen {
  readonly org: string
  readonly other: string
  readonly response: RawResponse
  readonly responses: readonly RawResponse[]
  readonly requests: readonly OriginRequest[]
  readonly mints: readonly Mint[]
}

const PROBE_ORG = 'probe'
const PROBE_DEADLINE_MS = 10_000

export class CaseTable {
  readonly service: Service
  readonly proxy: ProxyUnderTest
  readonly #canaries: Canaries
  /** Fields that this proxy requires in every request. */
  readonly #probeLines: readonly string[]
  #rows = 0

  constructor(service: Service, proxy: ProxyUnderTest, probeLines: readonly string[]) {
    this.#probeLines = probeLines
    this.service = service
    this.proxy = proxy
    this.#canaries = canariesOf(service.tokens)
  }

  async run(row: Case): Promise<void> {
    await this.#probe() // gets a token for the probe's own Org before anything is counted
    const org = `org-${++this.#rows}`
    const other = `other-${this.#rows}`
    const mintsBefore = this.service.tokens.mints.length
    const requestsBefore = this.service.requests.length
    const fill = (text: string) =>
      text.replaceAll('{org}', org).replaceAll('{other}', other).replaceAll('{port}', `${this.proxy.port}`)
    const content = row.content === undefined ? undefined : fill(row.content)
    const { length = 0 } = content ?? ''
    const send = fill(row.send).replaceAll('{length}', `${length}`).replaceAll('{size}', length.toString(16))

    const responses = await this.#exchange(row, send)
    await this.#probe()

    const requests = this.service.requests.slice(requestsBefore).filter((seen) => !isProbe(seen))
    const mints = this.service.tokens.mints.slice(mintsBefore)
    const [response] = responses
    expect(response, 'a response').toBeDefined()
    if (response === undefined) return
    const { status = 200, forwards = status === 200 ? [send.split(' ', 2).join(' ')] : [] } = row
    expect(response.status, response.content.toString()).toBe(status)
    if (row.code !== undefined) expect(problemOf(response).code).toBe(row.code)
    if (content !== undefined) expect(requests[0]?.content.toString('latin1')).toBe(content)
    if (row.breaksInside === true) await this.#checkBroken(requests, mints)
    else this.#checkForwarded(forwards.map(fill), requests, mints, [org, other, ...(row.orgs ?? []).map(fill)])
    expect(this.service.origin.malformed, 'what the origin could not read').toEqual([])
    expect(this.#canaries.search(this.proxy.output), 'secrets in the log').toEqual([])
    row.also?.({ org, other, response, responses, requests, mints })
  }

  /** One test for each of what is sent, by name: it gets this answer, and goes no further. */
  refuses(sent: Readonly<Record<string, string>>, status: number, code?: string, more: Partial<Case> = {}): void {
    test.each(Object.entries(sent))('%s', (name, send) =>
      this.run({ name, send, status, ...(code === undefined ? {} : { code }), ...more }),
    )
  }

  /** The responses to these bytes. If the connection stays open, a good request on it must get the next response. */
  async #exchange(row: Case, send: string): Promise<RawResponse[]> {
    await using client = await RawClient.sending(this.proxy.port, send)
    const responses: RawResponse[] = []
    let isOpen = true
    for (let i = 0; isOpen && i < (row.responses ?? 1); i++) {
      const response = await client.response(send.slice(0, send.indexOf(' ')))
      responses.push(response)
      isOpen = fieldOf(response, 'connection')?.toLowerCase() !== 'close'
    }
    if (row.closes === true) expect(isOpen, 'the connection lives on').toBe(false)
    if (isOpen) {
      client.send(get(SENTINEL, PROBE_ORG, 'Connection: close', ...this.#probeLines))
      expect((await client.response()).status, 'the request behind it on the connection').toBe(200)
    }
    const { bytes } = await client.untilClosed()
    expect(bytes.toString('latin1'), 'what came behind the last response').toBe('')
    expect(this.#canaries.search(client.received), 'secrets in the response').toEqual([])
    return responses
  }

  #checkForwarded(
    forwards: readonly string[],
    requests: readonly OriginRequest[],
    mints: readonly Mint[],
    orgs: readonly string[],
  ): void {
    expect(
      requests.map((seen) => `${seen.method} ${seen.target}`),
      'what was forwarded',
    ).toEqual(forwards)
    for (const seen of requests) {
      expect(seen.values('authorization'), 'credentials at the origin').toHaveLength(1)
      expect(orgs, 'whose token it was').toContain(this.service.orgOf(seen))
    }
    const served = new Set(requests.map((seen) => this.service.orgOf(seen)))
    expect(mints.map((mint) => mint.org).sort(), 'mints').toEqual([...served].sort())
  }

  async #checkBroken(requests: readonly OriginRequest[], mints: readonly Mint[]): Promise<void> {
    const hasEnded = () => requests.every((seen) => seen.state !== 'open')
    await this.service.origin.waitFor(hasEnded, 'the end of a request that broke off')
    expect(requests.length, 'requests').toBeLessThanOrEqual(1)
    expect(mints.length, 'mints').toBeLessThanOrEqual(1)
    expect(requests.filter((seen) => seen.state === 'complete')).toEqual([])
  }

  async #probe(): Promise<void> {
    const response = await request(this.proxy.port, get(ALIVE, PROBE_ORG, ...this.#probeLines), {
      deadlineMs: PROBE_DEADLINE_MS,
    })
    expect(response.status, 'the proxy lives').toBe(200)
  }
}

/** For one file or `describe`, at whose end it stops. */
export async function startTable(
  settings: ProxySettings = {},
  options: ServiceOptions = {},
  probeLines: readonly string[] = [],
): Promise<CaseTable> {
  // Mints of clients that have left must not be made later, among those of another row.
  const { service, proxy } = await startBothForFile(options, { 'tokens.mintRate': '100000', ...settings })
  return new CaseTable(service, proxy, probeLines)
}

const ALIVE = '/v2/alive'
const SENTINEL = '/v2/sentinel'

function isProbe({ target }: OriginRequest): boolean {
  return target.endsWith(ALIVE) || target.endsWith(SENTINEL)
}

export const HOST = 'Host: 127.0.0.1'
export const ORG = 'X-Org-Id: {org}'

/** What is sent for each of these values, by the value. */
export function sentFor(values: readonly string[], send: (value: string) => string): Record<string, string> {
  return Object.fromEntries(values.map((value) => [JSON.stringify(value), send(value)]))
}

/** The lines of a head with their ends, and the empty line after them. */
export function head(...lines: string[]): string {
  return `${lines.join('\r\n')}\r\n\r\n`
}

/** A good request. */
export function get(target: string, org: string, ...lines: string[]): string {
  return head(`GET ${target} HTTP/1.1`, 'Host: localhost', `X-Org-Id: ${org}`, ...lines)
}
