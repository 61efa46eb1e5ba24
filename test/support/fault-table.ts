/**
 * Faults of the origin as rows: the bytes that it writes for one request, how it ends, and the answer that the client must
 * get.
 */

import { expect } from 'vitest'
import { get } from './case-table.ts'
import { type OriginRequest, type OriginScript, writes } from './origin-connection.ts'
import { fieldOf, problemOf, RawClient, type RawResponse, request } from './raw-client.ts'
import type { Service } from './service.ts'
import { type ProxySettings, type ProxyUnderTest, startBothForFile } from './start-proxy.ts'

export interface Fault {
  /** For `test.each` alone. */
  readonly name?: string
  /** The origin writes this, as latin1, when it has the request. */
  readonly writes: string
  /** Then the origin does this; nothing by default. */
  readonly ends?: 'fin' | 'reset' | 'nothing' | undefined
  readonly method?: string
  /** Further lines of the request. */
  readonly lines?: readonly string[]
  /** 200 by default. */
  readonly status?: number
  readonly code?: string
  /** The client sees the response break off. */
  readonly isBroken?: boolean
  /** The origin's connection may serve another request. */
  readonly isReused?: boolean
  readonly also?: (response: RawResponse, requests: readonly OriginRequest[]) => void
}

const ORG = 'acme'

export class FaultTable {
  readonly service: Service
  readonly proxy: ProxyUnderTest
  readonly #scripts = new Map<string, OriginScript>()

  constructor(service: Service, proxy: ProxyUnderTest) {
    this.service = service
    this.proxy = proxy
    service.script = (seen, on) => (this.#scripts.get(seen.target) ?? sayAlive)(seen, on)
  }

  /** A new target, with the script that answers it. */
  target(script: OriginScript): string {
    const target = `/v2/fault-${this.#scripts.size}`
    this.#scripts.set(target, script)
    return target
  }

  /** A new target, for which the origin writes this and nothing more. */
  writing(bytes: string): string {
    return this.target(writes(bytes))
  }

  requestsFor(target: string): OriginRequest[] {
    return this.service.requests.filter((seen) => seen.target === target)
  }

  /** The first request for this target, once it is at the origin. */
  async arrival(target: string): Promise<OriginRequest> {
    await this.service.origin.waitFor(() => this.requestsFor(target).length > 0, `a request for ${target}`)
    return this.requestsFor(target)[0] as OriginRequest
  }

  /** Resolves when the proxy has ended the exchange for this target, and so its connection. */
  async abandoned(target: string): Promise<void> {
    const { connection } = await this.arrival(target)
    await this.service.origin.waitFor(() => connection.peerEnd !== undefined, 'the end at the origin')
  }

  async run(row: Fault): Promise<void> {
    const method = row.method ?? 'GET'
    const target = this.target(async (seen, connection) => {
      await seen.ended
      connection.write(row.writes)
      if (row.ends === 'fin') connection.end()
      if (row.ends === 'reset') connection.reset()
    })
    await using client = await RawClient.sending(
      this.proxy.port,
      get(target, ORG, ...(row.lines ?? [])).replace('GET', method),
    )
    const response = await client.response(method)
    expect(response.status, response.content.toString()).toBe(row.status ?? 200)
    expect(response.isComplete, 'a whole response').toBe(row.isBroken !== true)
    if (row.code !== undefined) expect(problemOf(response).code).toBe(row.code)
    if (response.status === 502) expect(fieldOf(response, 'proxy-status')).toMatch(/^org-access-proxy; error=/)
    await this.expectAlive()
    const requests = this.requestsFor(target)
    expect(requests.length, 'attempts').toBeLessThanOrEqual(2)
    row.also?.(response, requests)
    if (row.isReused !== false) return
    const ended = () => requests.every(({ connection }) => connection.isClosed || connection.peerEnd !== undefined)
    await this.service.origin.waitFor(ended, 'the end of a connection that cannot be trusted')
    for (const { connection } of requests) expect(connection.requests.at(-1)?.target, 'the last on it').toBe(target)
  }

  /** A good request, which must be answered soon. */
  async expectAlive(): Promise<void> {
    const response = await request(this.proxy.port, get('/v2/alive', ORG), { deadlineMs: 10_000 })
    expect(response.status, 'the proxy lives').toBe(200)
    expect(response.content.toString(), 'the right answer').toBe('alive')
  }
}

const sayAlive: OriginScript = () => ({ content: 'alive' })

/** For one file or `describe`, at whose end it stops. */
export async function startFaultTable(
  settings: ProxySettings = {},
  files: Readonly<Record<string, string>> = {},
): Promise<FaultTable> {
  const { service, proxy } = await startBothForFile({}, settings, files)
  return new FaultTable(service, proxy)
}
