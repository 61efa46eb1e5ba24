/**
 * Who may talk to the admin listener: the checks of the proxy's own listener, with one difference. Its status page runs
 * in a browser and asks for more, so what a browser says to come from this very page is let in. Pure.
 */

import type { HostList } from '../http/host.ts'

/** What is read of a request: `IncomingMessage` has it. */
export interface AdminRequestHead {
  readonly httpVersionMajor: number
  /** Flat list as received. */
  readonly rawHeaders: readonly string[]
}

export interface AccessOptions {
  readonly hosts: HostList
  readonly refusesForwarded: boolean
  /** True for what answers to whatever name it is called by. */
  readonly allowsAnyHost: boolean
}

export type AccessProblem =
  | 'http_version_refused'
  | 'host_invalid'
  | 'host_refused'
  | 'browser_refused'
  | 'forwarded_refused'

/** Undefined where the request may come in. */
export function checkAccess(head: AdminRequestHead, options: AccessOptions): AccessProblem | undefined {
  if (head.httpVersionMajor !== 1) return 'http_version_refused'
  const hosts = valuesOf(head, 'host')
  const hostProblem = options.allowsAnyHost ? undefined : checkHost(hosts, options.hosts)
  if (hostProblem !== undefined) return hostProblem
  // An address typed in, a bookmark or a page of ours; not a link or a call from anywhere else.
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
