/**
 * A stand-in for the specified part of the service: for a first run without an account, for demos, and for users' tests.
 * It uses no code of the proxy, so that neither can hide the other's bugs.
 */

import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { type Reply, refusal, send } from './exchange.ts'
import { answerService, type Service, type ServiceHandler } from './service.ts'
import { type SandboxStats, Stats } from './stats.ts'
import { SwitchBoard, SwitchError, type Switches } from './switches.ts'
import { TokenRegister } from './tokens.ts'

export type { ServiceHandler } from './service.ts'
export type { OrgStats, SandboxStats } from './stats.ts'
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
  const { port = 0, basePath = '', appId = DEFAULT_APP_ID, handler, now, random, ...given } = options
  if (!BASE_PATH.test(basePath)) throw new TypeError('basePath must look like /api')
  const switches = new SwitchBoard(random ?? Math.random)
  switches.set(given)
  const tokens = new TokenRegister(now ?? (() => performance.now()))
  const stats = new Stats()
  const server = createSandboxServer(basePath, { appId, handler, switches, tokens, stats })
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  const close = async () => {
    const closed = new Promise<void>((resolve) => server.close(() => resolve()))
    for (const socket of sockets) socket.destroy()
    await closed
  }
  const sandbox: Sandbox = {
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}${basePath}`,
    appId,
    get appSecret() {
      return switches.secrets.at(-1) ?? ''
    },
    set: (changes) => switches.set(changes),
    revoke: (org) => tokens.revoke(org),
    stats: () => stats.snapshot(),
    close,
    [Symbol.asyncDispose]: close,
  }
  return Object.defineProperty(sandbox, 'appSecret', { enumerable: false }) // JSON.stringify must not print it
}

function createSandboxServer(basePath: string, service: Service): Server {
  const answer = (request: IncomingMessage, response: ServerResponse, upgradeHead?: Buffer): void => {
    route(basePath, service, request, response, upgradeHead).catch((error: unknown) => {
      // Without a response, an error in a handler would look like a hang.
      if (response.closed || response.headersSent) return response.destroy()
      send(response, refusal(500, 'sandbox_failed', error instanceof Error ? error.message : String(error)))
    })
  }
  const server = createServer({ requestTimeout: 0 }, answer) // an upload may take any time
  server.maxHeadersCount = 0
  // Answers an upgrade request like any other; only the WebSocket example takes the socket over.
  return server.on('upgrade', (request, socket: Socket, head) => {
    const response = new ServerResponse(request)
    response.shouldKeepAlive = false
    response.assignSocket(socket)
    response.once('finish', () => socket.end())
    // Node no longer serves this socket, so we forward its events to the response.
    socket.on('drain', () => response.emit('drain'))
    socket.on('error', () => socket.destroy())
    if (hasContent(request)) send(response, refusal(400, 'upgrade_invalid', 'An upgrade takes no content.'))
    else answer(request, response, head)
  })
}

async function route(
  basePath: string,
  service: Service,
  request: IncomingMessage,
  response: ServerResponse,
  upgradeHead: Buffer | undefined,
): Promise<void> {
  // Not parsed with URL: the echo shows the target byte for byte.
  const [, path = '', query = ''] = /^([^?]*)\??(.*)$/s.exec(request.url ?? '') ?? []
  if (path.startsWith('/sandbox/')) return send(response, await answerControl(service, request, path, query))
  const servicePath = path.startsWith(basePath) ? path.slice(basePath.length) : ''
  if (servicePath === '/v2' || servicePath.startsWith('/v2/')) {
    return answerService(service, { request, response, path: servicePath, query, upgradeHead })
  }
  send(response, refusal(404, 'not_found', `The service is below ${basePath}/v2/, its switches are below /sandbox/.`))
}

/** Node never parses the content of an upgrade request, so an echo of it would be wrong. */
function hasContent({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
}

/** The sandbox's own endpoints: statistics, switches and revocation over HTTP. */
async function answerControl(service: Service, request: IncomingMessage, path: string, query: string): Promise<Reply> {
  const { stats, switches, tokens } = service
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
    switches.set(JSON.parse(await text(request)))
  } catch (error) {
    if (error instanceof SyntaxError) return refusal(400, 'switches_invalid', 'The content is not JSON.')
    if (error instanceof SwitchError) return refusal(400, 'switches_invalid', error.message)
    throw error
  }
  return { status: 200, value: switches.shown }
}
