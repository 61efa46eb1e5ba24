/**
 * Raw requests as rows of a table, sent through real sockets to one proxy before one service. Behind every row the
 * same is looked at: the proxy lives, nothing more reached the service than the row says, each request there bears
 * exactly the token of the Org that was sent, and no secret came out.
 */

import { expect } from 'vitest'
import { Canaries } from './canaries.ts'
import type { OriginRequest } from './origin-connection.ts'
import { fieldOf, problemOf, RawClient, type RawResponse, request } from './raw-client.ts'
import { type Service, type ServiceOptions, startService } from './service.ts'
import { type ProxySettings, type ProxyUnderTest, startProxy } from './start-proxy.ts'
import type { Mint } from './token-endpoint.ts'

export interface Case {
  /** Begins with the number of the case. */
  readonly name: string
  /**
   * Sent as latin1. `{org}` and `{other}` stand for Org ids that no request has named before, so that each mint is seen;
   * `{port}` for the port of the proxy, `{length}` and `{size}` for the octets of `content`, decimal and hexadecimal.
   */
  readonly send: string
  /** Of the first response. */
  readonly status: number
  readonly code?: string
  /** What reaches the origin, as `METHOD target`; nothing where it is not given. */
  readonly forwards?: readonly string[]
  /** What the one forwarded request must carry to the origin. */
  readonly content?: string
  /** The fault lies in the content: the head may reach the origin, but nothing that ends there as if it were whole. */
  readonly breaksInside?: boolean
  /** Ids that the row uses beside `{org}` and `{other}`. */
  readonly orgs?: readonly string[]
  /** Responses that the bytes are worth. */
  readonly responses?: number
  /** The connection must not live on. */
  readonly closes?: boolean
  /** Looks closer. */
  readonly also?: (seen: Seen) => void
}

/** What came of one row. */
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

export class CaseTable implements AsyncDisposable {
  readonly service: Service
  readonly #proxy: ProxyUnderTest
  readonly #canaries: Canaries
  /** Fields without which this proxy takes no request. */
  readonly #probeLines: readonly string[]
  #rows = 0

  constructor(service: Service, proxy: ProxyUnderTest, probeLines: readonly string[]) {
    this.#probeLines = probeLines
    this.service = service
    this.#proxy = proxy
    this.#canaries = new Canaries()
      .add('App secret', service.tokens.appSecret)
      .add('API key', service.tokens.apiKey)
      .add('token', service.tokens.marker)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#proxy[Symbol.asyncDispose]()
    await this.service[Symbol.asyncDispose]()
  }

  async run(row: Case): Promise<void> {
    await this.#probe() // mints for the probe's own Org before anything is counted
    const org = `org-${++this.#rows}`
    const other = `other-${this.#rows}`
    const mintsBefore = this.service.tokens.mints.length
    const requestsBefore = this.service.requests.length
    const fill = (text: string) =>
      text.replaceAll('{org}', org).replaceAll('{other}', other).replaceAll('{port}', `${this.#proxy.port}`)
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
    expect(response.status, response.content.toString()).toBe(row.status)
    if (row.code !== undefined) expect(problemOf(response).code).toBe(row.code)
    if (content !== undefined) expect(requests[0]?.content.toString('latin1')).toBe(content)
    if (row.breaksInside === true) await this.#checkBroken(requests, mints)
    else
      this.#checkForwarded((row.forwards ?? []).map(fill), requests, mints, [org, other, ...(row.orgs ?? []).map(fill)])
    expect(this.service.origin.malformed, 'what the origin could not read').toEqual([])
    expect(this.#canaries.search(this.#proxy.output), 'secrets in the log').toEqual([])
    row.also?.({ org, other, response, responses, requests, mints })
  }

  /** The responses to these bytes; where the connection lives on, a good request on it must get the very next one. */
  async #exchange(row: Case, send: string): Promise<RawResponse[]> {
    await using client = await RawClient.connect(this.#proxy.port)
    client.send(send)
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
    const response = await request(this.#proxy.port, get(ALIVE, PROBE_ORG, ...this.#probeLines), {
      deadlineMs: PROBE_DEADLINE_MS,
    })
    expect(response.status, 'the proxy lives').toBe(200)
  }
}

export async function startTable(
  settings: ProxySettings = {},
  options: ServiceOptions = {},
  probeLines: readonly string[] = [],
): Promise<CaseTable> {
  const service = await startService(options)
  return new CaseTable(service, await startProxy(service, settings), probeLines)
}

const ALIVE = '/v2/alive'
const SENTINEL = '/v2/sentinel'

function isProbe({ target }: OriginRequest): boolean {
  return target.endsWith(ALIVE) || target.endsWith(SENTINEL)
}

export const HOST = 'Host: 127.0.0.1'
export const ORG = 'X-Org-Id: {org}'

/** Lines of a head, each with its end, and the empty one behind them. */
export function head(...lines: string[]): string {
  return `${lines.join('\r\n')}\r\n\r\n`
}

/** A good request. */
export function get(target: string, org: string, ...lines: string[]): string {
  return head(`GET ${target} HTTP/1.1`, 'Host: localhost', `X-Org-Id: ${org}`, ...lines)
}
