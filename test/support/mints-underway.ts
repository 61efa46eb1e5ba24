/** The calls of the token endpoint that the proxy in this process has under way, as undici itself tells of them. */

import { subscribe, unsubscribe } from 'node:diagnostics_channel'

const MINT = /\/v2\/orgs\/([^/]+)\/access$/
const BEGINS = 'undici:request:create'
const ENDS = ['undici:request:trailers', 'undici:request:error'] as const

interface RequestMessage {
  readonly request: { readonly method: string; readonly path: string }
}

export class MintsUnderway implements Disposable {
  /** Calls that were ever made. */
  calls = 0
  readonly #underway = new Map<object, string>()
  readonly #most = new Map<string, number>()

  constructor() {
    subscribe(BEGINS, this.#begin)
    for (const channel of ENDS) subscribe(channel, this.#end)
  }

  /** Now. */
  get count(): number {
    return this.#underway.size
  }

  /** The Orgs for which more than one call was under way at once. */
  get doubled(): string[] {
    return [...this.#most].filter(([, most]) => most > 1).map(([org]) => org)
  }

  [Symbol.dispose](): void {
    unsubscribe(BEGINS, this.#begin)
    for (const channel of ENDS) unsubscribe(channel, this.#end)
  }

  readonly #begin = (message: unknown): void => {
    const { request } = message as RequestMessage
    const [, org] = MINT.exec(request.path) ?? []
    if (org === undefined || request.method !== 'POST') return
    this.calls++
    this.#underway.set(request, org)
    const now = [...this.#underway.values()].filter((other) => other === org).length
    this.#most.set(org, Math.max(this.#most.get(org) ?? 0, now))
  }

  readonly #end = (message: unknown): void => {
    this.#underway.delete((message as RequestMessage).request)
  }
}
