/**
 * A stand-in for the specified part of the service: for a first run without an account, for demos, and for users' tests.
 * It uses no code of the proxy, so that neither can hide the other's bugs.
 */

import { createServer, type IncomingMessage, type Server, ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import { type Reply, refusal, send } from './exchange.ts'
import { type SandboxState, Service, type ServiceHandler } from './service.ts'
import { type SandboxStats, Stats } from './stats.ts'
import { SwitchBoard, SwitchError, type Switches } from './switches.ts'
import { TokenRegister } from './tokens.ts'

export type { ServiceHandler } from './service.ts'
export type { OrgStats, SandboxStats, TotalStats } from './stats.ts'
export type { Fault, Switches } from './switches.ts'

export const DEFAULT_APP_ID = 'sandbox-app'
const BASE_PATH = /^(\/[^/?#]+)*$/

export interface SandboxOptions extends Partial<Switches> {
  /** Port on 127.0.0.1. The default, 0, takes a free one. */
  readonly port?: number
  /** Prefix of every path, such as `/api`; none by default. */
  readonly basePath?: string
  readonly appId?: string
  /** Answers for the paths of your service's API. Without it, the sandbox answers with an echo of the request. */
  readonly handler?: ServiceHandler
  /** Monotonic clock in milliseconds, by which tokens age. A test may control it. */
  readonly now?: () => number
  /** Random number from 0 up to 1, for faults with a probability. A test may control it. */
  readonly random?: () => number
}

export interface Sandbox extends AsyncDisposable {
  /** Value for the proxy's `baseUrl`. */
  readonly baseUrl: string
  readonly appId: string
  /** The accepted secret; the last one if there are several. */
  readonly appSecret: string
  /**
   * Changes the named switches, from now on.
   * @throws {TypeError} whose message names every wrong value
   */
  set(switches: Partial<Switches>): void
  /** Revokes every live token of the org, or of all orgs for `*`. Returns their number. */
  revoke(org: string): number
  stats(): SandboxStats
  /** Closes every connection, and resolves when all are closed. */
  close(): Promise<void>
}

/**
 * Resolves when the sandbox listens; rejects if the port is taken.
 * @throws {TypeError} whose message names every wrong option
 */
export async function startSandbox(options: SandboxOptions = {}): Promise<Sandbox> {
  const {
    port = 0,
    basePath = '',
    appId = DEFAULT_APP_ID,
    handler,
    now = () => performance.now(),
    random = Math.random,
    ...switches
  } = options
  if (!BASE_PATH.test(basePath)) throw new TypeError('basePath must look like /api')
  const board = new SwitchBoard(random)
  board.set(switches)
  const state = { appId, handler, switches: board, tokens: new TokenRegister(now), stats: new Stats() }
  const sandbox = new RunningSandbox(basePath, state)
  await sandbox.listen(port)
  return sandbox
}

class RunningSandbox implements Sandbox {
  readonly #basePath: string
  readonly #state: SandboxState
  readonly #service: Service
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #baseUrl = ''

  constructor(basePath: string, state: SandboxState) {
    this.#basePath = basePath
    this.#state = state
    this.#service = new Service(state)
    // An upload may take any time.
    this.#server = createServer({ requestTimeout: 0 })
    this.#server.maxHeadersCount = 0
    this.#server.on('request', (request, response) => this.#answer(request, response, undefined))
    this.#server.on('upgrade', (request, socket: Socket, head) => this.#answerUpgrade(request, socket, head))
    this.#server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket)
      socket.once('close', () => this.#sockets.delete(socket))
    })
  }

  async listen(port: number): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject)
      this.#server.listen(port, '127.0.0.1', resolve)
    })
    const { port: taken } = this.#server.address() as AddressInfo
    this.#baseUrl = `http://127.0.0.1:${taken}${this.#basePath}`
  }

  get baseUrl(): string {
    return this.#baseUrl
  }

  get appId(): string {
    return this.#state.appId
  }

  get appSecret(): string {
    return this.#state.switches.secrets.at(-1) ?? ''
  }

  set(switches: Partial<Switches>): void {
    this.#state.switches.set(switches)
  }

  revoke(org: string): number {
    return this.#state.tokens.revoke(org)
  }

  stats(): SandboxStats {
    return this.#state.stats.snapshot()
  }

  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()))
    for (const socket of this.#sockets) socket.destroy()
    await closed
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #answer(request: IncomingMessage, response: ServerResponse, upgradeHead: Buffer | undefined): void {
    this.#route(request, response, upgradeHead).catch((error: unknown) => {
      // Without a response, an error in a handler would look like a hang.
      if (response.closed || response.headersSent) return response.destroy()
      send(response, refusal(500, 'sandbox_failed', error instanceof Error ? error.message : String(error)))
    })
  }

  /** Answers an upgrade request like any other; only the WebSocket example takes the socket over. */
  #answerUpgrade(request: IncomingMessage, socket: Socket, head: Buffer): void {
    const response = new ServerResponse(request)
    response.shouldKeepAlive = false
    response.assignSocket(socket)
    response.once('finish', () => socket.end())
    // Node no longer serves this socket, so we forward its events to the response.
    socket.on('drain', () => response.emit('drain'))
    socket.on('error', () => socket.destroy())
    if (hasContent(request)) send(response, refusal(400, 'upgrade_invalid', 'An upgrade takes no content.'))
    else this.#answer(request, response, head)
  }

  async #route(request: IncomingMessage, response: ServerResponse, upgradeHead: Buffer | undefined): Promise<void> {
    const { path, query } = splitTarget(request.url ?? '')
    if (path.startsWith('/sandbox/')) return send(response, await answerControl(this.#state, request, path, query))

    const basePath = this.#basePath
    const servicePath = path.startsWith(basePath) ? path.slice(basePath.length) : ''
    if (servicePath === '/v2' || servicePath.startsWith('/v2/')) {
      return this.#service.answer({ request, response, path: servicePath, query, upgradeHead })
    }
    send(response, refusal(404, 'not_found', `The service is below ${basePath}/v2/, its switches are below /sandbox/.`))
  }
}

/** Node never parses the content of an upgrade request, so an echo of it would be wrong. */
function hasContent({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
}

/** Not parsed with URL: the echo shows the target byte for byte. */
function splitTarget(target: string): { path: string; query: string } {
  const queryAt = target.indexOf('?')
  if (queryAt === -1) return { path: target, query: '' }
  return { path: target.slice(0, queryAt), query: target.slice(queryAt + 1) }
}

/** The sandbox's own endpoints: statistics, switches and revocation over HTTP. */
async function answerControl(
  state: SandboxState,
  request: IncomingMessage,
  path: string,
  query: string,
): Promise<Reply> {
  const { stats, switches, tokens } = state
  // Any web page can send requests to this port; it must not change a switch.
  if (request.headers.origin !== undefined) return refusal(403, 'browser_refused', 'No web page may use this.')
  switch (`${request.method} ${path}`) {
    case 'GET /sandbox/stats':
      return { status: 200, value: stats.snapshot() }
    case 'GET /sandbox/switches':
      return { status: 200, value: switches.shown }
    case 'PUT /sandbox/switches':
      return setSwitches(switches, request)
    case 'POST /sandbox/revoke': {
      const org = new URLSearchParams(query).get('org')
      if (!org) return refusal(400, 'org_missing', 'Use ?org=ORG, or ?org=* for all.')
      return { status: 200, value: { revoked: tokens.revoke(org) } }
    }
    default:
      return refusal(404, 'not_found', 'GET stats, GET or PUT switches, POST revoke?org=ORG.')
  }
}

async function setSwitches(switches: SwitchBoard, request: IncomingMessage): Promise<Reply> {
  try {
    switches.set(JSON.parse(await contentOf(request)))
  } catch (error) {
    if (error instanceof SyntaxError) return refusal(400, 'switches_invalid', 'The content is not JSON.')
    if (error instanceof SwitchError) return refusal(400, 'switches_invalid', error.message)
    throw error
  }
  return { status: 200, value: switches.shown }
}

const MAX_CONTENT_BYTES = 64 * 1024

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
