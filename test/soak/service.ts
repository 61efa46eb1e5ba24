/**
 * The service of a soak: the sandbox with tokens that live 20 s, content that names its org in every byte, restarts that forget
 * all tokens, and App secrets that change. It counts what must never happen.
 */

import { randomBytes } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { text } from 'node:stream/consumers'
import { type Sandbox, startSandbox } from '../../src/sandbox/sandbox.ts'

const TOKEN_LIFETIME_MS = 20_000
const WORK = /^\/v2\/as\/([^/?]+)\?length=(\d+)$/

/** `length` bytes in which another org, a lost byte or a repeated one cannot hide. */
export function contentOf(org: string, length: number): string {
  const line = `${org}/0123456789abcdef/`
  return line.repeat(Math.ceil(length / line.length)).slice(0, length)
}

export class SoakService implements AsyncDisposable {
  /** A request for one org with the token of another. */
  readonly wrongOrgs: string[] = []
  /** Request content that is not what the client sent. */
  readonly wrongBytes: string[] = []
  /** These authenticate. The newest is the last. */
  #secrets = [randomBytes(12).toString('hex')]
  #sandbox: Sandbox | undefined
  #port = 0
  #mintsBefore = 0
  restarts = 0

  get identity(): { readonly baseUrl: string; readonly appId: string; readonly appSecret: string } {
    return { baseUrl: `http://127.0.0.1:${this.#port}`, appId: 'soak', appSecret: this.#secrets.at(-1) ?? '' }
  }

  get mints(): number {
    return this.#mintsBefore + (this.#sandbox?.stats().totals.mints ?? 0)
  }

  async listen(): Promise<void> {
    this.#sandbox = await startSandbox({
      port: this.#port,
      appId: 'soak',
      appSecret: this.#secrets,
      linked: '*',
      tokenLifetimeMs: TOKEN_LIFETIME_MS,
      handler: (request, response, org) => this.#answer(request, response, org),
    })
    this.#port = Number(new URL(this.#sandbox.baseUrl).port)
  }

  /** Cuts every connection, refuses new ones until `listen`, and forgets all tokens. */
  async stop(): Promise<void> {
    this.#mintsBefore = this.mints
    const sandbox = this.#sandbox
    this.#sandbox = undefined
    await sandbox?.close()
    this.restarts += 1
  }

  acceptSecrets(secrets: readonly string[]): void {
    this.#secrets = [...secrets]
    this.#sandbox?.set({ appSecret: this.#secrets })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#sandbox?.close()
  }

  async #answer(request: IncomingMessage, response: ServerResponse, org: string): Promise<void> {
    const content = await text(request)
    const [, asked, length = '0'] = WORK.exec(request.url ?? '') ?? []
    if (asked !== org) this.wrongOrgs.push(`a request for ${asked} with the token of ${org}`)
    if (content !== contentOf(org, content.length)) this.wrongBytes.push(`content of a request for ${org}`)
    response.writeHead(200, { 'content-length': length }).end(contentOf(org, Number(length)))
  }
}
