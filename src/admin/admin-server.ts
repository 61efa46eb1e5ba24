/** The admin listener: its own small HTTP server for health, metrics and the status page, with strict limits. */

import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import * as clock from '../clock.ts'
import { type ErrorCode, PROBLEMS, titleOf } from '../errors.ts'
import { gatherFields } from '../gateway/fields.ts'
import type { HostList } from '../http1/host.ts'
import { pathOf } from '../http1/target.ts'
import { type Bound, bind, type ListenAddress, locationOfPeer } from '../listener/bind.ts'
import { History, SAMPLE_INTERVAL_MS } from './history.ts'
import { type AdminProblemCode, type Answer, adminRoutes, type Route } from './routes.ts'
import type { AdminSources } from './status.ts'
import { Warnings } from './warnings.ts'

export interface AdminOptions {
  readonly address: ListenAddress
  readonly socketMode: number
  /** Listening sockets to use instead of binding `address`. */
  readonly inheritedSockets?: readonly number[] | undefined
  /** Other machines can reach the address. */
  readonly isRemote: boolean
  /** Other machines may use everything, not only health and metrics. */
  readonly allowRemote: boolean
  readonly refuseForwarded: boolean
  /** Read for each request: a reload may change them. */
  readonly rules: () => {
    /** `here`: callers run on this machine, who may see and purge nothing of each other. */
    readonly callers: 'none' | 'here' | 'elsewhere'
    /** Names accepted in `Host`. */
    readonly hosts: HostList
    readonly orgPattern: RegExp
  }
  /** Called with unexpected errors. */
  readonly report: (error: unknown) => void
}

// An `import` reads all that the module exports, and with it a whole HTTP client: on Node 24, an eighth of the CPU of a start.
const { createServer } = process.getBuiltinModule('node:http')

const MAX_HEAD_BYTES = 16 * 1024
const REQUEST_TIMEOUT_MS = 5_000
/** Longer than the interval at which the status page polls. */
const KEEP_ALIVE_MS = 5_000
/** A client that takes nothing of its answer for this long counts as gone. */
const IDLE_MS = 30_000
const MAX_CONNECTIONS = 64
/** What a client has to take its answer when the listener closes. */
const LAST_ANSWER_MS = 500

const COMMON_FIELDS = {
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  // A browser must run nothing in an answer. The status page has a policy of its own.
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
}

/** What differs from the problems of the proxy's own listener. */
export const ADMIN_PROBLEMS: { readonly [C in AdminProblemCode]?: Partial<(typeof PROBLEMS)[ErrorCode]> } = {
  browser_refused: {
    detail: 'Type the address of the status page into the browser. Other pages may neither link nor call here.',
  },
  remote_refused: {
    detail: 'Other machines get health and metrics only. Ask from this machine, or set admin.allowRemote.',
  },
  callers_refused: {
    status: 403,
    detail:
      'Callers can reach this address, and may not see or purge what is not theirs: it serves health and metrics only. Set admin.address to a unix socket.',
  },
  quit_refused: {
    status: 403,
    detail: `It is not stopped this way: send SIGTERM to process ${process.pid} of its machine, or set admin.quit.`,
  },
  not_found: {
    status: 404,
    detail:
      'GET /, /status, /metrics, /livez, /healthz, /readyz?verbose, POST /tokens/purge?org=ORG, /tokens/resume, /reload, /quitquitquit.',
  },
  method_refused: { detail: 'Use a method from the Allow field.' },
  org_id_missing: { detail: 'Send one ?org=ORG, or ?org=all for every Org.' },
  org_id_invalid: { detail: 'Send one id that matches orgs.pattern.' },
  proxy_internal_error: { detail: 'This is a bug of the proxy. Report it with the lines of its log.' },
}

export class AdminListener {
  readonly #options: AdminOptions
  /** Every few seconds: the next point of the plots, and the beginnings of bad states. */
  readonly #sample: () => void
  readonly #routes: ReadonlyMap<string, Route>
  /** Oldest first, each with whether its peer is on this machine. */
  readonly #sockets = new Map<Socket, boolean>()
  /** Connections whose request is being answered. */
  readonly #answering = new WeakSet<Socket>()
  #bound: Bound | undefined
  #sampling: clock.Timer | undefined

  constructor(options: AdminOptions, sources: AdminSources) {
    this.#options = options
    const history = new History(sources.metrics, clock.now())
    const warnings = new Warnings(sources.parts)
    this.#routes = adminRoutes(sources, history, warnings, () => options.rules().orgPattern)
    this.#sample = () => {
      history.sample(clock.now())
      warnings.present()
    }
  }

  /** Resolves with the address as written in a URL. */
  async listen(): Promise<string> {
    const { address, socketMode, inheritedSockets } = this.#options
    this.#bound = await bind(address, () => this.#newServer(), socketMode, inheritedSockets)
    this.#sampling = clock.every(SAMPLE_INTERVAL_MS, this.#sample)
    return this.#bound.address
  }

  async close(): Promise<void> {
    this.#sampling?.cancel()
    const closed = this.#bound?.close()
    // An answer may tell what the end of the proxy has broken off.
    for (const socket of this.#sockets.keys()) if (!this.#answering.has(socket)) socket.destroy()
    await clock.within(LAST_ANSWER_MS, closed ?? Promise.resolve())
    for (const socket of this.#sockets.keys()) socket.destroy()
    await closed
  }

  #newServer(): Server {
    const server = createServer({
      insecureHTTPParser: false,
      requireHostHeader: false, // the access check answers with problem details; Node itself refuses what is no HTTP
      maxHeaderSize: MAX_HEAD_BYTES,
      headersTimeout: REQUEST_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      connectionsCheckingInterval: 1_000,
      keepAliveTimeout: KEEP_ALIVE_MS,
    })
    server.timeout = IDLE_MS
    server.on('connection', (socket) => this.#accept(socket))
    server.on('request', (message, response) => this.#receive(message, response))
    return server
  }

  /** A full listener closes its oldest connection, so that idle clients cannot lock out the probes. */
  #accept(socket: Socket): void {
    const location = locationOfPeer(socket, this.#options.address.kind)
    const isServed = location === 'here' || (location === 'elsewhere' && this.#options.isRemote)
    if (!isServed) {
      socket.destroy()
      return
    }
    const [oldest] = this.#sockets.keys()
    if (this.#sockets.size >= MAX_CONNECTIONS) oldest?.destroy()
    this.#sockets.set(socket, location === 'here')
    socket.once('close', () => this.#sockets.delete(socket))
  }

  #receive(message: IncomingMessage, response: ServerResponse): void {
    const { socket, headers } = message
    // One packet holds a thousand pipelined requests, and Node would have us answer all of them at once.
    if (this.#answering.has(socket)) {
      socket.destroy()
      return
    }
    this.#answering.add(socket)
    response.once('close', () => this.#answering.delete(socket))
    // Nothing here takes content. Unread content must not be parsed as the next request.
    const hasContent = headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0'
    if (hasContent) response.shouldKeepAlive = false
    this.#respond(message, response).catch(this.#options.report)
  }

  async #respond(message: IncomingMessage, response: ServerResponse): Promise<void> {
    message.socket.setTimeout(0) // a stop is answered at its end
    const answer = await this.#answer(message).catch((error: unknown) => {
      this.#options.report(error)
      return problem('proxy_internal_error')
    })
    message.socket.setTimeout(IDLE_MS)
    const { status, type, content, fields } = answer
    response.writeHead(status, { ...COMMON_FIELDS, 'content-type': type, ...fields }).end(content)
  }

  async #answer(message: IncomingMessage): Promise<Answer> {
    const { url: target = '', method } = message
    const path = pathOf(target)
    const route = this.#routes.get(path)
    const refusal = this.#refusalOf(message, route)
    if (refusal !== undefined) return problem(refusal)
    if (route === undefined) return problem('not_found')
    const allowed = route.method === 'GET' ? ['GET', 'HEAD'] : ['POST']
    if (!allowed.includes(method ?? '')) return { ...problem('method_refused'), fields: { allow: allowed.join(', ') } }
    const answer = await route.answer(new URLSearchParams(target.slice(path.length)))
    return typeof answer === 'string' ? problem(answer) : answer
  }

  #refusalOf(message: IncomingMessage, route: Route | undefined): AdminProblemCode | undefined {
    const { rules, refuseForwarded, isRemote, address, allowRemote } = this.#options
    const { hosts, callers } = rules()
    const isForProbes = route?.isFor === 'probes'
    // Probes use the pod's address as Host, which no configuration can know.
    const refusal = checkAccess(message, isRemote && isForProbes ? 'any' : hosts, refuseForwarded)
    if (refusal !== undefined || isForProbes || address.kind === 'unix') return refusal
    // The rest shows orgs and purges tokens.
    if (this.#sockets.get(message.socket) === true) return callers === 'here' ? 'callers_refused' : undefined
    if (route?.isFor === 'this machine') return 'remote_refused'
    if (callers !== 'none') return 'callers_refused'
    return allowRemote ? undefined : 'remote_refused'
  }
}

/** Problem details (RFC 9457). */
function problem(code: AdminProblemCode): Answer {
  const { status, detail } = { ...PROBLEMS[code as ErrorCode], ...ADMIN_PROBLEMS[code] }
  const content = JSON.stringify({
    type: `urn:org-access-proxy:problem:${code}`,
    title: titleOf(code),
    status,
    detail,
    code,
  })
  return { status, type: 'application/problem+json', content: `${content}\n` }
}

/**
 * Undefined if the request is allowed. The checks are those of the proxy's own listener, with one difference: the status page
 * runs in a browser, so a browser's requests from that very page are allowed.
 */
function checkAccess(
  { httpVersionMajor, rawHeaders }: IncomingMessage,
  allowedHosts: HostList | 'any',
  refuseForwarded: boolean,
): ErrorCode | undefined {
  if (httpVersionMajor !== 1) return 'http_version_refused'
  const { host = '', origin, fetchSite = 'none', forwarded } = gatherFields(rawHeaders)
  const verdict = allowedHosts === 'any' ? 'allowed' : allowedHosts.check(host)
  if (verdict !== 'allowed') return verdict === 'refused' ? 'host_refused' : 'host_invalid'
  // `none` is a typed address or a bookmark, `same-origin` our own page. Other pages may neither link nor call here.
  const isOwn = origin === undefined || origin === `http://${host.toLowerCase()}`
  if (!isOwn || (fetchSite !== 'none' && fetchSite !== 'same-origin')) return 'browser_refused'
  return refuseForwarded && forwarded !== undefined ? 'forwarded_refused' : undefined
}
