/** A server of key sets, over TLS with the certificates of the tests. What it answers can be changed. */

import type { ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { certificate } from '../support/certificates.ts'
import { Changes } from '../support/changes.ts'

export class KeySetServer implements AsyncDisposable {
  answer: (response: ServerResponse) => void
  /** The `Authorization` field of each request. */
  readonly authorizations: (string | undefined)[] = []
  readonly changes = new Changes()
  readonly #server = createServer(certificate('localhost'), (request, response) => {
    this.authorizations.push(request.headers.authorization)
    this.changes.notify()
    this.answer(response)
  })

  private constructor(jwks: string) {
    this.answer = (response) => response.end(jwks)
  }

  static async start(jwks: string): Promise<KeySetServer> {
    const server = new KeySetServer(jwks)
    await new Promise<void>((resolve) => server.#server.listen(0, '127.0.0.1', resolve))
    return server
  }

  get requests(): number {
    return this.authorizations.length
  }

  get url(): string {
    return `https://localhost:${(this.#server.address() as AddressInfo).port}/jwks.json`
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise((resolve) => this.#server.close(resolve))
  }
}
