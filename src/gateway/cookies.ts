/** Makes cookies of the service come back: a cookie jar sends them to the host and path of the proxy, which it sees alone. */

import { targetPrefix } from '../http1/target.ts'

const ATTRIBUTE = /^[\t ]*([^\t =]*)[\t ]*(?:=[\t ]*(.*?)[\t ]*)?$/

/**
 * A `Set-Cookie` of the service as a client of the proxy has to get it (RFC 6265 §5.2). A `Domain` that does not cover the service
 * stays: the client refuses the cookie, as it would without the proxy.
 */
export function cookieThrough(cookie: string, baseUrl: URL, scheme: 'http' | 'https'): string {
  const [pair = '', ...attributes] = cookie.split(';')
  // The last one counts.
  const domain = attributes.map((text) => attributeOf(text, 'domain')).findLast((value) => value !== undefined)
  const isOfService = domain !== undefined && covers(domain.toLowerCase().replace(/^\./, ''), baseUrl.hostname)
  const kept = attributes.flatMap((text) => {
    if (isOfService && attributeOf(text, 'domain') !== undefined) return []
    if (scheme === 'http' && attributeOf(text, 'secure') !== undefined) return []
    const path = attributeOf(text, 'path')
    return path?.startsWith('/') === true ? ` Path=${pathThrough(path, targetPrefix(baseUrl))}` : text
  })
  return [pair, ...kept].join(';')
}

/** Undefined for another attribute; empty without a value. */
function attributeOf(attribute: string, name: string): string | undefined {
  const [, given = '', value = ''] = ATTRIBUTE.exec(attribute) ?? []
  return given.toLowerCase() === name ? value : undefined
}

function covers(domain: string, host: string): boolean {
  return host === domain || (host.endsWith(`.${domain}`) && !/^[\d.]+$/.test(host))
}

/** All that lies below `prefix` at the service lies below the root of the proxy. */
function pathThrough(path: string, prefix: string): string {
  if (`${path}/`.startsWith(`${prefix}/`)) return path.slice(prefix.length) || '/'
  return `${prefix}/`.startsWith(path.endsWith('/') ? path : `${path}/`) ? '/' : path
}
