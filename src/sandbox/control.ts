/** The sandbox's own endpoints under `/sandbox/`: statistics, switches and revocation over HTTP. */

import type { IncomingMessage } from 'node:http'
import { type Reply, refusal } from './exchange.ts'
import type { Stats } from './stats.ts'
import { type SwitchBoard, SwitchError } from './switches.ts'
import type { TokenRegister } from './tokens.ts'

export interface ControlOptions {
  readonly switches: SwitchBoard
  readonly tokens: TokenRegister
  readonly stats: Stats
}

const MAX_CONTENT_BYTES = 64 * 1024

export class Control {
  readonly #options: ControlOptions

  constructor(options: ControlOptions) {
    this.#options = options
  }

  async answer(request: IncomingMessage, path: string, query: string): Promise<Reply> {
    const { stats, switches } = this.#options
    // Any web page can send requests to this port; it must not change a switch.
    if (request.headers.origin !== undefined) return refusal(403, 'browser_refused', 'No web page may use this.')
    switch (`${request.method} ${path}`) {
      case 'GET /sandbox/stats':
        return { status: 200, value: stats.snapshot() }
      case 'GET /sandbox/switches':
        return { status: 200, value: switches.shown }
      case 'PUT /sandbox/switches':
        return this.#setSwitches(request)
      case 'POST /sandbox/revoke':
        return this.#revoke(new URLSearchParams(query).get('org'))
      default:
        return refusal(404, 'not_found', 'GET stats, GET or PUT switches, POST revoke?org=ORG.')
    }
  }

  async #setSwitches(request: IncomingMessage): Promise<Reply> {
    const { switches } = this.#options
    try {
      switches.set(JSON.parse(await contentOf(request)))
    } catch (error) {
      if (error instanceof SyntaxError) return refusal(400, 'switches_invalid', 'The content is not JSON.')
      if (error instanceof SwitchError) return refusal(400, 'switches_invalid', error.message)
      throw error
    }
    return { status: 200, value: switches.shown }
  }

  #revoke(org: string | null): Reply {
    if (!org) return refusal(400, 'org_missing', 'Use ?org=ORG, or ?org=* for all.')
    return { status: 200, value: { revoked: this.#options.tokens.revoke(org) } }
  }
}

/** @throws {SwitchError} if the content is too large */
async function contentOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  let lengthBytes = 0
  for await (const chunk of request) {
    lengthBytes += chunk.length
    if (lengthBytes > MAX_CONTENT_BYTES) throw new SwitchError('the content is too large')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}
