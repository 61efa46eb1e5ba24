/** Reaches the origin through a proxy that the environment names, with one CONNECT per connection (RFC 9110 §9.3.6). */

import type { Socket } from 'node:net'
import { OriginError } from '../errors.ts'
import { newProxyClient, type ProxyVariables } from '../undici.ts'

/** Calls `done` with a connection to `host` and `port`, or with an error. `cancel` of the result gives up. */
export type ConnectTunnel = (host: string, port: number, done: TunnelDone) => { cancel(): void }

type TunnelDone = (error: Error | undefined, socket: Socket | undefined) => void

/** Returns undefined if the origin is reached directly. */
export function tunnelFor(baseUrl: URL, proxies: ProxyVariables): ConnectTunnel | undefined {
  const isSecure = baseUrl.protocol === 'https:'
  const proxy = isSecure ? (proxies.httpsProxy ?? proxies.httpProxy) : proxies.httpProxy
  const port = baseUrl.port === '' ? (isSecure ? 443 : 80) : Number(baseUrl.port)
  if (proxy === undefined || isExempt(proxies.noProxy ?? '', baseUrl.hostname, port)) return undefined
  return (host, targetPort, done) => openTunnel(new URL(proxy.reveal()), host, targetPort, done)
}

function openTunnel(proxy: URL, host: string, port: number, done: TunnelDone) {
  const client = newProxyClient(proxy.origin)
  const authority = `${host.includes(':') ? `[${host}]` : host}:${port}`
  const headers = { host: authority, ...authorizationFor(proxy) }
  client.connect({ path: authority, headers }, (error, answer) => {
    if (error !== null) {
      done(error, undefined)
      return
    }
    const socket = answer.socket as Socket
    socket.once('close', () => client.destroy())
    if (answer.statusCode === 200) {
      done(undefined, socket)
      return
    }
    socket.on('error', () => undefined).destroy()
    done(new OriginError('connection_refused', `the proxy on the way answered ${answer.statusCode}`), undefined)
  })
  return { cancel: () => void client.destroy().catch(() => undefined) }
}

function authorizationFor({ username, password }: URL): Readonly<Record<string, string>> {
  if (username === '' && password === '') return {}
  const credentials = Buffer.from(`${percentDecoded(username)}:${percentDecoded(password)}`).toString('base64')
  return { 'proxy-authorization': `Basic ${credentials}` }
}

/** Returns `text` unchanged if it is not valid percent-encoding. */
function percentDecoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** Reads `NO_PROXY` as undici does for mints: hosts with their subdomains, with or without a port, or `*` for all. */
function isExempt(noProxy: string, host: string, port: number): boolean {
  if (noProxy === '*') return true
  return noProxy.split(/[\s,]+/).some((entry) => {
    const [, name = entry, entryPort] = /^(.+):(\d+)$/.exec(entry) ?? []
    const domain = name.replace(/^\*?\./, '').toLowerCase()
    if (domain === '' || (entryPort !== undefined && Number(entryPort) !== port)) return false
    return host === domain || host.endsWith(`.${domain}`)
  })
}
