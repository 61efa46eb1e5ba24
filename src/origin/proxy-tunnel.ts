/** Reaches the service through a proxy that the environment names, with one CONNECT per connection (RFC 9110 §9.3.6). */

import { isIP, type Socket } from 'node:net'
import { unescape as percentDecoded } from 'node:querystring'
import { OriginError } from '../errors.ts'
import { parseSubnet } from '../http1/host.ts'
import type { Secret } from '../secret.ts'
import { originError } from './origin-failure.ts'

export interface Proxies {
  /** A URL. It may contain a password. */
  readonly httpProxy: Secret | undefined
  readonly httpsProxy: Secret | undefined
  readonly noProxy: string | undefined
}

/** The way through the proxy. */
export interface ProxyRoute {
  /** Host and port of the proxy, for people. */
  readonly proxy: string
  /** Calls `done` once, with a connection to the service or with an error. Returns a function that gives up. */
  open(done: (result: Socket | Error) => void): () => void
}

/** Resolves with undefined if the service is reached directly. */
export async function tunnelFor(
  baseUrl: URL,
  proxies: Proxies | undefined,
  connectTimeoutMs: number,
): Promise<ProxyRoute | undefined> {
  if (proxies === undefined) return undefined
  const isSecure = baseUrl.protocol === 'https:'
  const variable = isSecure ? (proxies.httpsProxy ?? proxies.httpProxy) : proxies.httpProxy
  const port = baseUrl.port === '' ? (isSecure ? 443 : 80) : Number(baseUrl.port)
  if (variable === undefined || isExempt(proxies.noProxy ?? '', baseUrl.hostname, port)) return undefined
  // Loading it takes 60 to 100 ms and 8 to 15 MiB, and few need it.
  const { Client } = await import('undici')
  const path = `${baseUrl.hostname}:${port}`
  const { origin, host: proxy } = new URL(variable.reveal())
  const connect = {
    timeout: 0, // our own limit holds
    autoSelectFamilyAttemptTimeout: connectTimeoutMs / 2, // Node's 250 ms reach no proxy that is farther away
    rejectUnauthorized: true, // NODE_TLS_REJECT_UNAUTHORIZED does not hold
  }
  return {
    proxy,
    open: (done) => {
      const { username, password } = new URL(variable.reveal())
      const credentials = Buffer.from(`${percentDecoded(username)}:${percentDecoded(password)}`).toString('base64')
      const authorization = { 'proxy-authorization': `Basic ${credentials}` }
      const headers = { host: path, ...(username === '' && password === '' ? {} : authorization) }
      const client = new Client(origin, { connect })
      const end = () => void client.destroy().catch(() => undefined)
      client.connect({ path, headers }, (error, answer) => {
        if (error !== null) {
          done(failure(proxy, error))
          return
        }
        const socket = answer.socket as Socket
        socket.once('close', end)
        if (answer.statusCode === 200) {
          done(socket)
          return
        }
        socket.on('error', () => undefined).destroy()
        done(refusal(proxy, answer.statusCode))
      })
      return end
    },
  }
}

function refusal(proxy: string, status: number): OriginError {
  const isLogin = status === PROXY_AUTHENTICATION_REQUIRED
  const remedy = isLogin ? ': check the user and the password in its variable' : ''
  const hint = `The proxy on the way, ${proxy}, answered ${status} to CONNECT${remedy}.`
  return new OriginError('connection_refused', `the proxy on the way answered ${status}`, { hint })
}

const PROXY_AUTHENTICATION_REQUIRED = 407

/** Names the proxy: an error without it would be taken for one of the service. */
function failure(proxy: string, error: Error): OriginError {
  const [first = error]: readonly NodeJS.ErrnoException[] = error instanceof AggregateError ? error.errors : [error]
  const { code, message } = originError(first)
  const says = code === 'dns_error' ? 'does not resolve' : 'cannot be reached'
  const hint = `The proxy on the way, ${proxy}, ${says} (${first.code ?? code}).`
  return new OriginError(code, message, { cause: first, hint })
}

/** Reads `NO_PROXY`: hosts with their subdomains, with or without a port, subnets for addresses, or `*` for all. */
function isExempt(noProxy: string, host: string, port: number): boolean {
  const address = host.replace(/^\[|\]$/g, '')
  const family = isIP(address) === 6 ? 'ipv6' : 'ipv4'
  return noProxy.split(/[\s,]+/).some((entry) => {
    if (entry === '*') return true
    if (host === `[${entry}]`) return true // an IPv6 address, whose end looks like a port
    const subnet = parseSubnet(entry)
    if (subnet !== undefined) return isIP(address) !== 0 && subnet.check(address, family)
    const [, name = entry, entryPort] = /^(.+):(\d+)$/.exec(entry) ?? []
    const domain = name.replace(/^\*?\./, '').toLowerCase()
    if (domain === '' || (entryPort !== undefined && Number(entryPort) !== port)) return false
    return host === domain || host.endsWith(`.${domain}`)
  })
}
