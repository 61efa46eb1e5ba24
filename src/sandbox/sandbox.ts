/**
 * A stand-in for the specified part of the service: for a first run without an account, for demos, and for users' tests.
 * It uses no code of the proxy, so that neither can hide the other's bugs.
 */

import { once } from 'node:events'
import { createServer, type IncomingMessage, ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { Refusal, send } from './exchange.ts'
import { Service, type ServiceHandler } from './service.ts'
import type { Switches } from './switches.ts'

export type { OrgStats, SandboxStats, ServiceHandler } from './service.ts'
export type { Assertion, Fault, Limit, Members, StatedEnd, Switches } from './switches.ts'

export const DEFAULT_APP_ID = 'sandbox-app'
const TARGET = /^(\/[^?]*)(?:\?(.*))?$/s

export interface SandboxOptions extends Partial<Switches> {
  /** Port on 127.0.0.1. The default, 0, takes a free one. */
  readonly port?: number
  readonly appId?: string
  /** Answers for the paths of your service's API. Without it, the sandbox answers with an echo of the request. */
  readonly handler?: ServiceHandler
}

/** How a proxy gets tokens of the service, and shows them to it. */
export type TokenWays = Pick<
  Service,
  | 'tokenSettleMs'
  | 'tokenEndpoint'
  | 'tokenField'
  | 'tokenAuth'
  | 'tokenForm'
  | 'tokenJson'
  | 'tokenHeader'
  | 'tokenAssertion'
>

export interface Sandbox
  extends TokenWays,
    Pick<Service, 'appId' | 'appSecret' | 'set' | 'revoke' | 'stats'>,
    AsyncDisposable {
  /** Value for the proxy's `baseUrl`. */
  readonly baseUrl: string
  /** Closes every connection, and resolves when all are closed. */
  close(): Promise<void>
}

/**
 * Resolves when the sandbox listens; rejects if the port is taken.
 * @throws {TypeError} whose message names every wrong option
 */
export async function startSandbox(options: SandboxOptions = {}): Promise<Sandbox> {
  const { port = 0, appId = DEFAULT_APP_ID, handler, ...switches } = options
  const service = new Service(appId, switches, handler)
  const sockets = new Set<Socket>()
  const server = createServer({ requestTimeout: 0 }, (request, response) => answer(service, request, response))
  server.maxHeadersCount = 0
  server.on('upgrade', (request, socket: Socket, head) => answerUpgrade(service, request, socket, head))
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
  const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return Object.assign(service, { baseUrl, close, [Symbol.asyncDispose]: close })
}

async function answer(
  service: Service,
  request: IncomingMessage,
  response: ServerResponse,
  upgradeHead?: Buffer,
): Promise<void> {
  const { url = '' } = request
  try {
    if (url.startsWith('/sandbox/')) return send(response, await answerControl(service, request, url))
    const [, path = '', query = ''] = TARGET.exec(url) ?? []
    await service.answer({ request, response, path, query, upgradeHead })
  } catch (error) {
    // Without a response, an error in a handler would look like a hang.
    if (response.closed || response.headersSent) return void response.destroy()
    const refusal = error instanceof Refusal ? error : new Refusal(500, 'sandbox_failed', String(error))
    send(response, { error: refusal.code, message: refusal.message }, refusal.status, refusal.fields)
  }
}

/** Answers an upgrade request like any other; only the WebSocket example takes the socket over. */
function answerUpgrade(service: Service, request: IncomingMessage, socket: Socket, head: Buffer): void {
  const response = new ServerResponse(request)
  response.shouldKeepAlive = false
  response.assignSocket(socket)
  response.once('finish', () => socket.end())
  // Node no longer serves this socket, so we forward its events to the response.
  socket.on('drain', () => response.emit('drain'))
  socket.on('error', () => socket.destroy())
  answer(service, request, response, head)
}

/** The sandbox's own endpoints: statistics, switches and revocation over HTTP. Resolves with the content of the answer. */
async function answerControl(service: Service, request: IncomingMessage, url: string): Promise<unknown> {
  // Any web page can send requests to this port; it must not change a switch.
  if (request.headers.origin !== undefined) throw new Refusal(403, 'browser_refused', 'No web page may use this.')
  const { pathname, searchParams } = new URL(url, 'http://sandbox')
  switch (`${request.method} ${pathname}`) {
    case 'GET /sandbox/stats':
      return service.stats()
    case 'PUT /sandbox/switches':
      try {
        service.set(JSON.parse(await text(request)))
      } catch (error) {
        throw new Refusal(400, 'switches_invalid', String(error))
      }
      return service.shownSwitches
    case 'POST /sandbox/revoke': {
      const org = searchParams.get('org')
      if (!org) throw new Refusal(400, 'org_missing', 'Use ?org=ORG, or ?org=* for all.')
      return { revoked: service.revoke(org) }
    }
    default:
      throw new Refusal(404, 'not_found', 'GET stats, PUT switches, POST revoke?org=ORG.')
  }
}
