/**
 * Checks of requests to the admin listener. They are those of the proxy's own listener, with one difference: the status page
 * runs in a browser, so a browser's requests from that very page are allowed. Pure.
 */

import type { HostList } from '../http/host.ts'

/** The part of `IncomingMessage` that is read. */
export interface AdminRequestHead {
  readonly httpVersionMajor: number
  /** Flat list, as received. */
  readonly rawHeaders: readonly string[]
}

export interface AccessOptions {
  readonly hosts: HostList
  readonly refusesForwarded: boolean
  /** Accepts every `Host`. */
  readonly allowsAnyHost: boolean
}

export type AccessProblem =
  | 'http_version_refused'
  | 'host_invalid'
  | 'host_refused'
  | 'browser_refused'
  | 'forwarded_refused'

/** Undefined if the request is allowed. */
export function checkAccess(head: AdminRequestHead, options: AccessOptions): AccessProblem | undefined {
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

function checkHost(values: readonly string[], allowed: HostList): AccessProblem | undefined {
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

function isForwarded(head: AdminRequestHead): boolean {
  return ['forwarded', 'x-forwarded-for', 'x-real-ip'].some((name) => valuesOf(head, name).length > 0)
}

function valuesOf({ rawHeaders }: AdminRequestHead, name: string): string[] {
  return rawHeaders.filter((_, i) => i % 2 === 1 && rawHeaders[i - 1]?.toLowerCase() === name)
}
