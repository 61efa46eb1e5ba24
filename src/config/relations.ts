/** Checks that need several settings: contradictions, which are refused, and risky choices, which get a warning. */

import { type OrgId, parseOrgId } from '../http/org-id.ts'
import { formatAddress, isLoopback, type ListenAddress } from './address.ts'
import { callerCautions, callerContradictions } from './callers.ts'
import type { Remark } from './problem.ts'
import { isReadableOnTheWay } from './setting-parsers.ts'
import type { SettingValues } from './settings.ts'

/** A value that is wrong by itself is missing here, and checks that need it are skipped. */
export function contradictions(values: SettingValues): Remark[] {
  return [
    ...insecureOrigin(values),
    ...remoteListener(values),
    ...sameAddress(values),
    ...loneStar(values),
    ...lifetimes(values),
    ...orgIds(values),
    ...fleetStore(values),
    ...callerContradictions(values),
  ]
}

/** Permitted, but probably a mistake or a risk. */
export function cautions(values: SettingValues): Remark[] {
  const { baseUrl } = values
  const address = values['listen.address']
  const remarks: Remark[] = [...fleetCautions(values), ...callerCautions(values)]
  if (baseUrl !== undefined && isReadableOnTheWay(baseUrl)) {
    const message = 'is plain http to another machine: the network can read the App secret and all tokens'
    remarks.push({ key: 'baseUrl', message })
  }
  if (baseUrl !== undefined && /\/v2\/?$/.test(baseUrl.pathname)) {
    remarks.push({ key: 'baseUrl', message: 'ends in /v2, and so does every path begin: requests will go to /v2/v2/…' })
  }
  if (baseUrl !== undefined && /\/orgs(\/|$)/.test(baseUrl.pathname)) {
    const message = 'contains /orgs: give the address of the service, without the path of the token endpoint'
    remarks.push({ key: 'baseUrl', message })
  }
  if (address !== undefined && isRemote(address) && !asksForCredential(values)) {
    const message = 'is open to other machines, and anyone there acts as the App: set callers or listen.callerKeyFile'
    remarks.push({ key: 'listen.address', message })
  }
  if (values['listen.hosts']?.includes('*')) {
    const message = 'accepts every Host: a web page that rebinds its name to this address is not refused'
    remarks.push({ key: 'listen.hosts', message })
  }
  if (values.appRoutes?.some(({ path, isPrefix }) => isPrefix && (path === '/' || path === '/v2/'))) {
    const message = 'covers every path: such requests carry the App credentials instead of the token of an Org'
    remarks.push({ key: 'appRoutes', message })
  }
  return remarks
}

function asksForCredential(values: SettingValues): boolean {
  return values['listen.callerKeyFile'] !== undefined || (values.callers ?? []).length > 0
}

function fleetStore(values: SettingValues): Remark[] {
  const store = values['fleet.store']
  if (store === undefined || values['fleet.cluster'] !== true) return []
  if (store.kind === 'unix') return [{ key: 'fleet.store', message: 'is a unix socket, but a cluster speaks TCP' }]
  if (store.database === 0) return []
  return [{ key: 'fleet.store', message: 'names a database, but a cluster has only database 0' }]
}

function fleetCautions(values: SettingValues): Remark[] {
  const store = values['fleet.store']
  const remarks: Remark[] = []
  if (store === undefined) {
    for (const key of ['fleet.username', 'fleet.passwordFile', 'fleet.caFile'] as const) {
      if (values[key] !== undefined) remarks.push({ key, message: 'has no effect without fleet.store' })
    }
    return remarks
  }
  const usesTls = store.kind === 'tcp' && store.tls
  if (store.kind === 'tcp' && !usesTls && !isLoopback(store.host)) {
    const message = 'is not encrypted, so the network can read the password of the store: use rediss://'
    remarks.push({ key: 'fleet.store', message })
  }
  if (!usesTls && values['fleet.caFile'] !== undefined) {
    remarks.push({ key: 'fleet.caFile', message: 'has no effect without rediss:// in fleet.store' })
  }
  return remarks
}

/** The ids that match `orgs.pattern`. */
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
  const message = 'is open to other machines: use localhost, or set listen.allowRemote to true'
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
  return [{ key: 'listen.hosts', message: 'has "*" and other names: keep only "*" to accept all, or remove it' }]
}

function lifetimes(values: SettingValues): Remark[] {
  const [least, first, most] = [values['tokens.minLifetime'], values['tokens.lifetime'], values['tokens.maxLifetime']]
  if (least === undefined || first === undefined || most === undefined) return []
  if (least > most) return [{ key: 'tokens.minLifetime', message: 'is longer than tokens.maxLifetime: swap them?' }]
  if (first >= least && first <= most) return []
  return [{ key: 'tokens.lifetime', message: 'is not between tokens.minLifetime and tokens.maxLifetime' }]
}

function orgIds(values: SettingValues): Remark[] {
  // If the pattern is invalid, the characters that no pattern permits are still checked.
  const pattern = values['orgs.pattern'] ?? /^/
  const [allowed, warm] = [values['orgs.allow'] ?? [], values['tokens.warm'] ?? []]
  const misshapen = (['orgs.allow', 'tokens.warm'] as const).flatMap((key) =>
    (values[key] ?? [])
      .filter((id) => parseOrgId(id, pattern) === undefined)
      .map((id) => ({
        key,
        message: `has ${JSON.stringify(id.slice(0, 64))}, which is not an org id (see orgs.pattern)`,
      })),
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
