/** Reaches the origin through a proxy that the environment names, with one CONNECT per connection (RFC 9110 §9.3.6). */

import { isIP, type Socket } from 'node:net'
import { unescape as percentDecoded } from 'node:querystring'
import { OriginError } from '../errors.ts'
import { parseSubnet } from '../http/host.ts'
import type { Secret } from '../secret.ts'

export interface Proxies {
  /** A URL. It may contain a password. */
  readonly httpProxy: Secret | undefined
  readonly httpsProxy: Secret | undefined
  readonly noProxy: string | undefined
}

/** Calls `done` once, with a connection to the origin or with an error. Returns a function that gives up. */
export type ConnectTunnel = (done: (result: Socket | Error) => void) => () => void

/** Our own limit holds, and NODE_TLS_REJECT_UNAUTHORIZED does not. */
const CONNECT = { timeout: 0, rejectUnauthorized: true }

/** Resolves with undefined if the origin is reached directly. */
export async function tunnelFor(baseUrl: URL, proxies: Proxies | undefined): Promise<ConnectTunnel | undefined> {
  if (proxies === undefined) return undefined
  const isSecure = baseUrl.protocol === 'https:'
  const proxy = isSecure ? (proxies.httpsProxy ?? proxies.httpProxy) : proxies.httpProxy
  const port = baseUrl.port === '' ? (isSecure ? 443 : 80) : Number(baseUrl.port)
  if (proxy === undefined || isExempt(proxies.noProxy ?? '', baseUrl.hostname, port)) return undefined
  // Loading it takes 60 to 100 ms and 8 to 15 MiB, and few need it.
  const { Client } = await import('undici')
  const path = `${baseUrl.hostname}:${port}`
  return (done) => {
    const { origin, username, password } = new URL(proxy.reveal())
    const credentials = Buffer.from(`${percentDecoded(username)}:${percentDecoded(password)}`).toString('base64')
    const authorization = { 'proxy-authorization': `Basic ${credentials}` }
    const headers = { host: path, ...(username === '' && password === '' ? {} : authorization) }
    const client = new Client(origin, { connect: CONNECT })
    const end = () => void client.destroy().catch(() => undefined)
    client.connect({ path, headers }, (error, answer) => {
      if (error !== null) {
        done(error)
        return
      }
      const socket = answer.socket as Socket
      socket.once('close', end)
      if (answer.statusCode === 200) {
        done(socket)
        return
      }
      socket.on('error', () => undefined).destroy()
      done(new OriginError('connection_refused', `the proxy on the way answered ${answer.statusCode}`))
    })
    return end
  }
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
