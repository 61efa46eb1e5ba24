/** Reaches the service through a proxy that the environment names, with one CONNECT per connection (RFC 9110 §9.3.6). */

import { isIP, type LookupFunction, type Socket } from 'node:net'
import { unescape as percentDecoded } from 'node:querystring'
import { OriginError } from '../errors.ts'
import { parseSubnet } from '../http1/host.ts'
import type { MalformedMessage } from '../http1/malformed.ts'
import { ResponseParser } from '../http1/response-parser.ts'
import { Secret } from '../secret.ts'
import { Connector, type OutboundProxy } from './connector.ts'
import { originError } from './origin-failure.ts'

export interface Proxies {
  /** A URL. It may contain a password. */
  readonly httpProxy: Secret | undefined
  readonly httpsProxy: Secret | undefined
  readonly noProxy: string | undefined
}

/** Returns undefined if the service is reached directly. */
export function outboundProxyFor(
  baseUrl: URL,
  proxies: Proxies | undefined,
  connectTimeoutMs: number,
  lookup?: LookupFunction,
): OutboundProxy | undefined {
  if (proxies === undefined) return undefined
  const isSecure = baseUrl.protocol === 'https:'
  const variable = isSecure ? (proxies.httpsProxy ?? proxies.httpProxy) : proxies.httpProxy
  const port = baseUrl.port === '' ? (isSecure ? 443 : 80) : Number(baseUrl.port)
  if (variable === undefined || isExempt(proxies.noProxy ?? '', baseUrl.hostname, port)) return undefined
  const url = new URL(variable.reveal())
  const proxy = url.host
  const connector = new Connector({ baseUrl: new URL(url.origin), connectTimeoutMs, lookup })
  const fields = [`Host: ${baseUrl.hostname}:${port}`, ...authorizationOf(url)]
  const request = new Secret([`CONNECT ${baseUrl.hostname}:${port} HTTP/1.1`, ...fields, '\r\n'].join('\r\n'))
  return {
    proxy,
    open(done) {
      let socket: Socket | undefined
      const giveUp = connector.open(undefined, false, (result) => {
        if (result instanceof OriginError) return done(unreachable(proxy, result))
        socket = result
        sendConnect(result, request, proxy, (error) => {
          if (error !== undefined) result.destroy()
          done(error ?? result)
        })
      })
      return () => {
        giveUp()
        socket?.destroy()
      }
    },
  }
}

function authorizationOf({ username, password }: URL): string[] {
  if (username === '' && password === '') return []
  const credentials = Buffer.from(`${percentDecoded(username)}:${percentDecoded(password)}`).toString('base64')
  return [`Proxy-Authorization: Basic ${credentials}`]
}

/** Asks the proxy for the tunnel. Calls `done` once. */
function sendConnect(socket: Socket, request: Secret, proxy: string, done: (error?: OriginError) => void): void {
  let isDone = false
  const finish = (error?: OriginError) => {
    if (isDone) return
    isDone = true
    socket.off('data', read)
    done(error)
  }
  let status: number | undefined
  const parser = new ResponseParser({
    responseHead(head) {
      status = head.status
    },
    messageContent() {},
    messageEnd() {},
  })
  // As behind a HEAD: a success has no content, whatever its fields say, and that of a refusal is not read.
  parser.expect(true)
  const read = (chunk: Buffer) => {
    try {
      const next = parser.read(chunk, 0, chunk.length)
      if (status === undefined) return
      if (status > 299) finish(refusal(proxy, status))
      // No request has been sent. These bytes must not become the response to the first one.
      else if (next < chunk.length) finish(malformed(proxy, 'bytes behind it'))
      else finish()
    } catch (error) {
      finish(malformed(proxy, (error as MalformedMessage).reason))
    }
  }
  socket.on('data', read)
  socket.on('error', (error) => finish(unreachable(proxy, originError(error))))
  socket.once('close', () => finish(unreachable(proxy, CLOSED)))
  socket.write(request.reveal(), 'latin1')
}

const CLOSED = new OriginError('connection_terminated', 'closed before an answer')

function refusal(proxy: string, status: number): OriginError {
  const isLogin = status === PROXY_AUTHENTICATION_REQUIRED
  const remedy = isLogin ? ': check the user and the password in its variable' : ''
  const hint = `The proxy on the way, ${proxy}, answered ${status} to CONNECT${remedy}.`
  return new OriginError('connection_refused', `the proxy on the way answered ${status}`, { hint })
}

const PROXY_AUTHENTICATION_REQUIRED = 407

function malformed(proxy: string, reason: string): OriginError {
  const hint = `The proxy on the way, ${proxy}, does not answer CONNECT as HTTP demands (${reason}).`
  return new OriginError('http_protocol_error', 'the proxy on the way answered no HTTP', { hint })
}

/** Names the proxy: an error without it would be taken for one of the service. */
function unreachable(proxy: string, { code, message, cause }: OriginError): OriginError {
  const says = code === 'dns_error' ? 'does not resolve' : 'cannot be reached'
  const detail = cause instanceof Error && 'code' in cause ? cause.code : message
  const hint = `The proxy on the way, ${proxy}, ${says} (${detail}).`
  return new OriginError(code, message, { cause, hint })
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
