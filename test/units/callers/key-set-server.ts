/** A server of key sets, over TLS with the certificates of the tests. What it answers can be changed. */

import type { IncomingHttpHeaders, ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import { certificate } from '../../support/certificates.ts'
import { Changes } from '../../support/changes.ts'
import { type Listening, listening } from '../../support/listening.ts'

export class KeySetServer implements AsyncDisposable {
  answer: (response: ServerResponse) => void
  /** The fields of each request. */
  readonly fields: IncomingHttpHeaders[] = []
  readonly changes = new Changes()
  readonly #server = createServer(certificate('localhost'), (request, response) => {
    this.fields.push(request.headers)
    this.changes.notify()
    this.answer(response)
  })

  #listening: Listening | undefined

  private constructor(jwks: string) {
    this.answer = (response) => response.end(jwks)
  }

  static async start(jwks: string, port = 0): Promise<KeySetServer> {
    const server = new KeySetServer(jwks)
    server.#listening = await listening(server.#server, '127.0.0.1', port)
    return server
  }

  get requests(): number {
    return this.fields.length
  }

  get port(): number {
    return this.#listening?.port ?? 0
  }

  get url(): string {
    return `https://localhost:${this.port}/jwks.json`
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#listening?.[Symbol.asyncDispose]()
  }
}
