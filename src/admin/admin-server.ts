/** The admin listener: its own small HTTP server for health, metrics and the status page, with strict limits. */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import type { Duplex } from 'node:stream'
import type { HostList } from '../http/host.ts'
import { pathOf } from '../http/target.ts'
import { type Bound, bind, isLocalPeer, type ListenAddress } from '../listener/bind.ts'
import { type AdminProblemCode, endWithAdminProblem, respondWithAdminProblem } from './admin-problem.ts'
import { History, SAMPLE_INTERVAL_MS } from './history.ts'
import { type Answer, adminRoutes, type Route } from './routes.ts'
import type { AdminSources } from './status.ts'
import { refusedMints, type Warnings } from './warnings.ts'

export interface AdminOptions {
  readonly address: ListenAddress
  readonly socketMode: number
  /** Listening sockets to use instead of binding `address`. */
  readonly inheritedSockets?: readonly number[] | undefined
  /** Other machines can reach the address. */
  readonly isRemote: boolean
  /** Other machines may use everything, not only health and metrics. */
  readonly allowsRemote: boolean
  /** `here`: processes of this machine may be callers, who may see and purge nothing of each other. Changed by a reload. */
  readonly callers: 'none' | 'here' | 'elsewhere'
  readonly hosts: HostList
  readonly refusesForwarded: boolean
  /** Read for each request, like `hosts`: a reload may change them. */
  readonly orgPattern: RegExp
  /** Called with unexpected errors. */
  readonly report: (error: unknown) => void
  /** Monotonic milliseconds since the start of the process. */
  readonly now?: () => number
}

const MAX_HEAD_BYTES = 16 * 1024
const REQUEST_TIMEOUT_MS = 5_000
/** Longer than the interval at which the status page polls. */
const KEEP_ALIVE_MS = 5_000
/** A client that takes nothing of its answer for this long counts as gone. */
const IDLE_MS = 30_000
const MAX_CONNECTIONS = 64

const COMMON_FIELDS: readonly (readonly [string, string])[] = [
  ['cache-control', 'no-store'],
  ['x-content-type-options', 'nosniff'],
  ['x-frame-options', 'DENY'],
  ['referrer-policy', 'no-referrer'],
  ['cross-origin-resource-policy', 'same-origin'],
]
/** For everything but the status page: a browser must run nothing in it. */
const INERT = "default-src 'none'; frame-ancestors 'none'"

export class AdminListener {
  readonly #options: AdminOptions
  readonly #now: () => number
  readonly #history: History
  readonly #warnings: Warnings
  readonly #routes: ReadonlyMap<string, Route>
  /** Oldest first. */
  readonly #sockets = new Set<Socket>()
  /** Connections whose request is being answered. */
  readonly #answering = new WeakSet<Socket>()
  #bound: Bound | undefined
  #sampling: NodeJS.Timeout | undefined

  constructor(options: AdminOptions, sources: AdminSources) {
    this.#options = options
    this.#now = options.now ?? (() => performance.now())
    this.#history = new History(sources.metrics, this.#now())
    this.#warnings = sources.warnings
    this.#warnings.add('mints_refused', () => refusedMints(this.#history.recent(this.#now()), sources.service.baseUrl))
    this.#routes = adminRoutes({
      sources,
      history: this.#history,
      orgPattern: () => options.orgPattern,
      now: this.#now,
    })
  }

  /** Resolves with the address as written in a URL. */
  async listen(): Promise<string> {
    const { address, socketMode, inheritedSockets } = this.#options
    this.#bound = await bind(address, () => this.#newServer(), socketMode, inheritedSockets)
    this.#sampling = setInterval(() => {
      this.#history.sample(this.#now())
      this.#warnings.present()
    }, SAMPLE_INTERVAL_MS).unref()
    return this.#bound.address
  }

  async close(): Promise<void> {
    clearInterval(this.#sampling)
    const closed = this.#bound?.close()
    for (const socket of this.#sockets) socket.destroy()
    await closed
  }

  #newServer(): Server {
    const server = createServer({
      insecureHTTPParser: false,
      requireHostHeader: false, // the access check answers with problem details
      maxHeaderSize: MAX_HEAD_BYTES,
      headersTimeout: REQUEST_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      connectionsCheckingInterval: 1_000,
      keepAliveTimeout: KEEP_ALIVE_MS,
    })
    server.timeout = IDLE_MS
    server.on('connection', (socket) => this.#accept(socket))
    server.on('request', (message, response) => this.#receive(message, response))
    server.on('clientError', (error, socket) => refuseInput(error, socket))
    return server
  }

  /** A full listener closes its oldest connection, so that idle clients cannot lock out the probes. */
  #accept(socket: Socket): void {
    if (!this.#options.isRemote && !isLocalPeer(socket)) {
      socket.destroy()
      return
    }
    const [oldest] = this.#sockets
    if (this.#sockets.size >= MAX_CONNECTIONS) oldest?.destroy()
    this.#sockets.add(socket)
    socket.once('close', () => this.#sockets.delete(socket))
  }

  #receive(message: IncomingMessage, response: ServerResponse): void {
    const { socket } = message
    // One packet holds a thousand pipelined requests, and Node would have us answer all of them at once.
    if (this.#answering.has(socket)) {
      socket.destroy()
      return
    }
    this.#answering.add(socket)
    response.once('close', () => this.#answering.delete(socket))
    for (const [name, value] of COMMON_FIELDS) response.setHeader(name, value)
    response.setHeader('content-security-policy', INERT)
    // Nothing here takes content. Unread content must not be parsed as the next request.
    if (declaresContent(message)) response.shouldKeepAlive = false
    this.#answer(message, response).catch((error: unknown) => {
      this.#options.report(error)
      respondWithAdminProblem(response, 'proxy_internal_error')
    })
  }

  async #answer(message: IncomingMessage, response: ServerResponse): Promise<void> {
    const target = message.url ?? ''
    const path = pathOf(target)
    const route = this.#routes.get(path)
    const problem = this.#admissionProblem(message, route)
    if (problem !== undefined) return respondWithAdminProblem(response, problem)
    if (route === undefined) return respondWithAdminProblem(response, 'not_found')
    if (!allows(route, message.method)) return respondWithAdminProblem(response, 'method_refused', allowed(route))
    const answer = await route.answer(new URLSearchParams(target.slice(path.length)))
    if (typeof answer === 'string') respondWithAdminProblem(response, answer)
    else respond(response, answer)
  }

  #admissionProblem(message: IncomingMessage, route: Route | undefined): AdminProblemCode | undefined {
    const { hosts, refusesForwarded, isRemote } = this.#options
    const isForProbes = route?.isForProbes === true
    // Probes use the pod's address as Host, which no configuration can know.
    const problem = checkAccess(message, { hosts, refusesForwarded, allowsAnyHost: isRemote && isForProbes })
    if (problem !== undefined) return problem
    return isForProbes ? undefined : this.#peerProblem(message.socket)
  }

  /** The peers that may see orgs and purge tokens. */
  #peerProblem(socket: Socket): AdminProblemCode | undefined {
    const { address, allowsRemote, callers } = this.#options
    if (address.kind === 'unix') return undefined
    if (isLocalPeer(socket)) return callers === 'here' ? 'callers_refused' : undefined
    if (callers !== 'none') return 'callers_refused'
    return allowsRemote ? undefined : 'remote_refused'
  }
}

function allows({ method }: Route, asked: string | undefined): boolean {
  return asked === method || (method === 'GET' && asked === 'HEAD')
}

function allowed({ method }: Route): string {
  return method === 'GET' ? 'GET, HEAD' : method
}

function respond(response: ServerResponse, answer: Answer): void {
  response.statusCode = answer.status
  response.setHeader('content-type', answer.type)
  if (answer.contentSecurityPolicy !== undefined) {
    response.setHeader('content-security-policy', answer.contentSecurityPolicy)
  }
  response.end(answer.content)
}

function declaresContent({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0'
}

function refuseInput(error: Error, socket: Duplex): void {
  const code = 'code' in error ? error.code : ''
  if (!socket.writable) {
    socket.destroy()
    return
  }
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') endWithAdminProblem(socket, 'request_timeout')
  else if (code === 'HPE_HEADER_OVERFLOW') endWithAdminProblem(socket, 'request_head_too_large')
  else if (typeof code === 'string' && code.startsWith('HPE_')) endWithAdminProblem(socket, 'request_invalid')
  else socket.destroy()
}

type RequestHead = Pick<IncomingMessage, 'httpVersionMajor' | 'rawHeaders'>

export interface AccessOptions {
  readonly hosts: HostList
  readonly refusesForwarded: boolean
  /** Accepts every `Host`. */
  readonly allowsAnyHost: boolean
}

/**
 * Undefined if the request is allowed. The checks are those of the proxy's own listener, with one difference: the status page
 * runs in a browser, so a browser's requests from that very page are allowed. Pure.
 */
export function checkAccess(head: RequestHead, options: AccessOptions): AdminProblemCode | undefined {
  if (head.httpVersionMajor !== 1) return 'http_version_refused'
  const hosts = valuesOf(head, 'host')
  const hostProblem = options.allowsAnyHost ? undefined : checkHost(hosts, options.hosts)
  if (hostProblem !== undefined) return hostProblem
  // `none` is a typed address or a bookmark, `same-origin` our own page. Other pages may neither link nor call here.
  const sites = valuesOf(head, 'sec-fetch-site')
  if (!sites.every((site) => site === 'none' || site === 'same-origin')) return 'browser_refused'
  const ownOrigin = `http://${hosts.join().toLowerCase()}`
  if (!valuesOf(head, 'origin').every((origin) => origin === ownOrigin)) return 'browser_refused'
  if (options.refusesForwarded && isForwarded(head)) return 'forwarded_refused'
  return undefined
}

function checkHost(values: readonly string[], allowed: HostList): AdminProblemCode | undefined {
  const [host] = values
  if (host === undefined || values.length > 1) return 'host_invalid'
  switch (allowed.check(host)) {
    case 'allowed':
      return undefined
    case 'refused':
      return 'host_refused'
    case 'invalid':
      return 'host_invalid'
  }
}

function isForwarded(head: RequestHead): boolean {
  return ['forwarded', 'x-forwarded-for', 'x-real-ip'].some((name) => valuesOf(head, name).length > 0)
}

function valuesOf({ rawHeaders }: RequestHead, name: string): string[] {
  return rawHeaders.filter((_, i) => i % 2 === 1 && rawHeaders[i - 1]?.toLowerCase() === name)
}
