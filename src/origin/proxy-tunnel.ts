/** Reaches the origin through a proxy that the environment names, with one CONNECT per connection (RFC 9110 §9.3.6). */

import type { Socket } from 'node:net'
import type { Client } from 'undici'
import { OriginError } from '../errors.ts'
import type { Secret } from '../secret.ts'

/** The proxies that the environment names. */
export interface Proxies {
  /** A URL. It may contain a password. */
  readonly httpProxy: Secret | undefined
  readonly httpsProxy: Secret | undefined
  readonly noProxy: string | undefined
}

/** Calls `done` with a connection to `host` and `port`, or with an error. `cancel` of the result gives up. */
export type ConnectTunnel = (host: string, port: number, done: TunnelDone) => { cancel(): void }

interface Target {
  readonly host: string
  readonly port: number
}

type TunnelDone = (error: Error | undefined, socket: Socket | undefined) => void

/** Resolves with undefined if the origin is reached directly. */
export async function tunnelFor(baseUrl: URL, proxies: Proxies | undefined): Promise<ConnectTunnel | undefined> {
  if (proxies === undefined) return undefined
  const isSecure = baseUrl.protocol === 'https:'
  const proxy = isSecure ? (proxies.httpsProxy ?? proxies.httpProxy) : proxies.httpProxy
  const port = baseUrl.port === '' ? (isSecure ? 443 : 80) : Number(baseUrl.port)
  if (proxy === undefined || isExempt(proxies.noProxy ?? '', baseUrl.hostname, port)) return undefined
  // Loading it takes 60 to 100 ms and 8 to 15 MiB, and few need it.
  const undici = await import('undici')
  return (host, targetPort, done) => {
    const url = new URL(proxy.reveal())
    return openTunnel(new undici.Client(url.origin), url, { host, port: targetPort }, done)
  }
}

function openTunnel(client: Client, proxy: URL, { host, port }: Target, done: TunnelDone) {
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

/** Reads `NO_PROXY`: hosts with their subdomains, with or without a port, or `*` for all. */
function isExempt(noProxy: string, host: string, port: number): boolean {
  if (noProxy === '*') return true
  return noProxy.split(/[\s,]+/).some((entry) => {
    const [, name = entry, entryPort] = /^(.+):(\d+)$/.exec(entry) ?? []
    const domain = name.replace(/^\*?\./, '').toLowerCase()
    if (domain === '' || (entryPort !== undefined && Number(entryPort) !== port)) return false
    return host === domain || host.endsWith(`.${domain}`)
  })
}
