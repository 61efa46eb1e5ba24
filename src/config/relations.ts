/** What no setting can know by itself: settings that contradict each other, and ones that deserve a word of warning. */

import { type OrgId, parseOrgId } from '../http/org-id.ts'
import { formatAddress, isLoopback, type ListenAddress } from './address.ts'
import { isReadableOnTheWay } from './base-url.ts'
import type { SettingKey, SettingValues } from './settings.ts'

/** Said about one key; the message is a predicate of it. */
export interface Remark {
  readonly key: SettingKey
  readonly message: string
}

/** A value that was wrong by itself is missing here; what depends on it is then not judged. */
export function contradictions(values: SettingValues): Remark[] {
  return [
    ...insecureOrigin(values),
    ...remoteListener(values),
    ...sameAddress(values),
    ...loneStar(values),
    ...lifetimes(values),
    ...orgIds(values),
  ]
}

/** Permitted, and yet not what most people want. */
export function cautions(values: SettingValues): Remark[] {
  const address = values['listen.address']
  const baseUrl = values.baseUrl
  const remarks: (Remark | false | undefined)[] = [
    baseUrl &&
      isReadableOnTheWay(baseUrl) && {
        key: 'baseUrl',
        message: 'is plain http to another machine: the App secret and all tokens travel readable',
      },
    baseUrl &&
      /\/v2\/?$/.test(baseUrl.pathname) && {
        key: 'baseUrl',
        message: 'ends in /v2, with which every path begins anyway: requests will go to /v2/v2/…',
      },
    address &&
      isRemote(address) &&
      values['listen.callerKeyFile'] === undefined && {
        key: 'listen.address',
        message: 'can be reached from other machines: whoever reaches it acts as the App; set listen.callerKeyFile',
      },
    values['listen.hosts']?.includes('*') && {
      key: 'listen.hosts',
      message: 'accepts every Host: a web page that rebinds its name to this address is not refused by it',
    },
    values.appRoutes?.some(({ path, isPrefix }) => isPrefix && (path === '/' || path === '/v2/')) && {
      key: 'appRoutes',
      message: 'covers everything: such requests carry the App credentials instead of the token of an Org',
    },
  ]
  return remarks.filter((remark) => typeof remark === 'object')
}

/** The ids that have the shape. */
export function orgIdsOf(values: SettingValues, key: 'orgs.allow' | 'tokens.warm'): OrgId[] {
  const pattern = values['orgs.pattern']
  if (pattern === undefined) return []
  return (values[key] ?? []).map((id) => parseOrgId(id, pattern)).filter((id) => id !== undefined)
}

function insecureOrigin(values: SettingValues): Remark[] {
  if (values.baseUrl === undefined || values['origin.allowInsecure'] !== false) return []
  if (!isReadableOnTheWay(values.baseUrl)) return []
  const message = 'is plain http to another machine: use https, or set origin.allowInsecure to true'
  return [{ key: 'baseUrl', message }]
}

function remoteListener(values: SettingValues): Remark[] {
  const address = values['listen.address']
  if (address === undefined || values['listen.allowRemote'] !== false || !isRemote(address)) return []
  const message = 'can be reached from other machines: use localhost, or set listen.allowRemote to true'
  return [{ key: 'listen.address', message }]
}

function sameAddress(values: SettingValues): Remark[] {
  const [ours, admin] = [values['listen.address'], values['admin.address']]
  if (ours === undefined || admin === undefined || admin === 'off') return []
  if (formatAddress(ours) !== formatAddress(admin) || (ours.kind === 'tcp' && ours.port === 0)) return []
  return [{ key: 'admin.address', message: 'is the same as listen.address: give it a port or path of its own' }]
}

function loneStar(values: SettingValues): Remark[] {
  const hosts = values['listen.hosts'] ?? []
  if (!hosts.includes('*') || hosts.length === 1) return []
  return [{ key: 'listen.hosts', message: 'has "*" beside other names: leave it alone to accept all, or take it out' }]
}

function lifetimes(values: SettingValues): Remark[] {
  const [least, first, most] = [values['tokens.minLifetime'], values['tokens.lifetime'], values['tokens.maxLifetime']]
  if (least === undefined || first === undefined || most === undefined) return []
  if (least > most) return [{ key: 'tokens.minLifetime', message: 'is longer than tokens.maxLifetime: swap them?' }]
  if (first >= least && first <= most) return []
  return [{ key: 'tokens.lifetime', message: 'is not between tokens.minLifetime and tokens.maxLifetime' }]
}

function orgIds(values: SettingValues): Remark[] {
  // Without a pattern to go by there is still what no pattern permits.
  const pattern = values['orgs.pattern'] ?? /^/
  const [allowed, warm] = [values['orgs.allow'] ?? [], values['tokens.warm'] ?? []]
  const misshapen = (['orgs.allow', 'tokens.warm'] as const).flatMap((key) =>
    (values[key] ?? [])
      .filter((id) => parseOrgId(id, pattern) === undefined)
      .map((id) => ({ key, message: `has ${JSON.stringify(id.slice(0, 64))}, which is no org id (see orgs.pattern)` })),
  )
  const strangers = warm
    .filter((id) => allowed.length > 0 && !allowed.includes(id) && parseOrgId(id, pattern) !== undefined)
    .map((id): Remark => ({ key: 'tokens.warm', message: `has ${JSON.stringify(id)}, which is not in orgs.allow` }))
  const maxOrgs = values['tokens.maxOrgs'] ?? Number.POSITIVE_INFINITY
  const tooMany: Remark[] =
    warm.length > maxOrgs
      ? [{ key: 'tokens.warm', message: `has ${warm.length} orgs, more than tokens.maxOrgs keeps (${maxOrgs})` }]
      : []
  return [...misshapen, ...strangers, ...tooMany]
}

function isRemote(address: ListenAddress): boolean {
  return address.kind === 'tcp' && !isLoopback(address.host)
}
