/** Checks of several settings together: contradictions are refused, and risky choices get a warning. */

import { type OrgId, parseOrgId } from '../http/org-id.ts'
import { formatAddress, isLoopback, isReadableOnTheWay, type ListenAddress } from './address.ts'
import type { Remark } from './problem.ts'
import type { SettingKey, SettingValues } from './settings.ts'

/** Skips a check if one of its values is missing because it is wrong by itself. */
export function contradictions(values: SettingValues): Remark[] {
  const remarks: Remark[] = []
  const refuse = (key: SettingKey, message: string) => remarks.push({ key, message })
  const { baseUrl } = values
  if (baseUrl !== undefined && isReadableOnTheWay(baseUrl) && values['origin.allowInsecure'] === false) {
    refuse('baseUrl', 'is plain http to another machine: use https, or set origin.allowInsecure to true')
  }
  const [address, admin] = [values['listen.address'], values['admin.address']]
  if (address !== undefined && isRemote(address) && values['listen.allowRemote'] === false) {
    refuse('listen.address', 'is open to other machines: use localhost, or set listen.allowRemote to true')
  }
  if (address !== undefined && admin !== undefined && isTaken(address, admin)) {
    refuse('admin.address', 'is the same as listen.address: give it a port or path of its own')
  }
  const hosts = values['listen.hosts'] ?? []
  if (hosts.includes('*') && hosts.length > 1) {
    refuse('listen.hosts', 'has "*" and other names: keep only "*" to accept all, or remove it')
  }
  const certFile = values['listen.tls.certFile']
  if (certFile !== undefined && address?.kind === 'unix') {
    refuse('listen.tls.certFile', 'is set, but listen.address is a unix socket, which speaks no TLS')
  }
  if (certFile === undefined && values['listen.tls.clientCaFile'] !== undefined) {
    refuse('listen.tls.clientCaFile', 'needs listen.tls.certFile: clients show certificates over TLS only')
  }
  const store = values['fleet.cluster'] === true ? values['fleet.store'] : undefined
  if (store?.kind === 'unix') refuse('fleet.store', 'is a unix socket, but a cluster speaks TCP')
  else if (store !== undefined && store.database !== 0) {
    refuse('fleet.store', 'names a database, but a cluster has only database 0')
  }
  return [...remarks, ...orgIdRemarks(values)]
}

function orgIdRemarks(values: SettingValues): Remark[] {
  // If the pattern is invalid, the ids are still checked for characters that no pattern permits.
  const pattern = values['orgs.pattern'] ?? /^/
  const isOrgId = (id: string) => parseOrgId(id, pattern) !== undefined
  const [allowed, warm] = [values['orgs.allow'] ?? [], values['tokens.warm'] ?? []]
  const maxOrgs = values['tokens.maxOrgs'] ?? Number.POSITIVE_INFINITY
  const remarks: Remark[] = []
  const refuse = (key: SettingKey, id: string, place: string) =>
    remarks.push({ key, message: `has ${JSON.stringify(id.slice(0, 64))}, which is not ${place}` })
  for (const id of allowed) if (!isOrgId(id)) refuse('orgs.allow', id, 'an org id (see orgs.pattern)')
  for (const id of warm) {
    if (!isOrgId(id)) refuse('tokens.warm', id, 'an org id (see orgs.pattern)')
    else if (allowed.length > 0 && !allowed.includes(id)) refuse('tokens.warm', id, 'in orgs.allow')
  }
  if (warm.length > maxOrgs) {
    const message = `has ${warm.length} orgs, more than tokens.maxOrgs keeps (${maxOrgs})`
    remarks.push({ key: 'tokens.warm', message })
  }
  return remarks
}

/** The ids that match `orgs.pattern`. */
export function orgIdsOf(values: SettingValues, key: 'orgs.allow' | 'tokens.warm'): OrgId[] {
  const pattern = values['orgs.pattern']
  if (pattern === undefined) return []
  return (values[key] ?? []).map((id) => parseOrgId(id, pattern)).filter((id) => id !== undefined)
}

/** Refuses a reload that would open the listener to every machine, or would need another listener. */
export function openings(running: SettingValues, resulting: SettingValues): Remark[] {
  const address = resulting['listen.address']
  const remarks: Remark[] = []
  if (address !== undefined && isRemote(address) && asksForCredential(running) && !asksForCredential(resulting)) {
    const message =
      'would be open to other machines without a credential: keep callers or listen.callerKeyFile, or restart'
    remarks.push({ key: 'listen.address', message })
  }
  if ((running['listen.tls.certFile'] === undefined) !== (resulting['listen.tls.certFile'] === undefined)) {
    remarks.push({ key: 'listen.tls.certFile', message: 'turns TLS on or off, which needs a restart' })
  }
  return remarks
}

function asksForCredential(values: SettingValues): boolean {
  return values['listen.callerKeyFile'] !== undefined || (values.callers ?? []).length > 0
}

/** Choices that are permitted, but probably a mistake or a risk. */
export function cautions(values: SettingValues): Remark[] {
  const remarks: Remark[] = []
  const warn = (key: SettingKey, message: string) => remarks.push({ key, message })
  const store = values['fleet.store']
  const usesTls = store?.kind === 'tcp' && store.tls
  if (store === undefined) {
    for (const key of ['fleet.username', 'fleet.passwordFile', 'fleet.caFile'] as const) {
      if (values[key] !== undefined) warn(key, 'has no effect without fleet.store')
    }
  } else if (!usesTls && values['fleet.caFile'] !== undefined) {
    warn('fleet.caFile', 'has no effect without rediss:// in fleet.store')
  }
  if (store?.kind === 'tcp' && !usesTls && !isLoopback(store.host)) {
    warn('fleet.store', 'is not encrypted, so the network can read the password of the store: use rediss://')
  }
  const { baseUrl } = values
  if (baseUrl !== undefined && isReadableOnTheWay(baseUrl)) {
    warn('baseUrl', 'is plain http to another machine: the network can read the App secret and all tokens')
  }
  if (baseUrl !== undefined && /\/v2\/?$/.test(baseUrl.pathname)) {
    warn('baseUrl', 'ends in /v2, and so does every path begin: requests will go to /v2/v2/…')
  }
  if (baseUrl !== undefined && /\/orgs(\/|$)/.test(baseUrl.pathname)) {
    warn('baseUrl', 'contains /orgs: give the address of the service, without the path of the token endpoint')
  }
  const address = values['listen.address']
  if (address !== undefined && isRemote(address) && !asksForCredential(values)) {
    warn(
      'listen.address',
      'is open to other machines, and anyone there acts as the App: set callers or listen.callerKeyFile',
    )
  }
  const sendsKey = (values.callers ?? []).some(({ keyFiles, jwt }) => keyFiles !== undefined || jwt !== undefined)
  if (address !== undefined && isRemote(address) && values['listen.tls.certFile'] === undefined) {
    if (sendsKey) warn('callers', IN_THE_CLEAR)
    if (values['listen.callerKeyFile'] !== undefined) warn('listen.callerKeyFile', IN_THE_CLEAR)
  }
  if (values['listen.hosts']?.includes('*')) {
    warn('listen.hosts', 'accepts every Host: a web page that rebinds its name to this address is not refused')
  }
  if (values.appRoutes?.some(({ path, isPrefix }) => isPrefix && (path === '/' || path === '/v2/'))) {
    warn('appRoutes', 'covers every path: such requests carry the App credentials instead of the token of an Org')
  }
  return remarks
}

const IN_THE_CLEAR =
  'sends keys and tokens in the clear, so whoever listens on the network becomes the caller: set listen.tls.certFile'

function isRemote(address: ListenAddress): boolean {
  return address.kind === 'tcp' && !isLoopback(address.host)
}

/** With port 0, each listener gets a free port of its own. */
function isTaken(address: ListenAddress, admin: ListenAddress | 'off'): boolean {
  if (admin === 'off' || (admin.kind === 'tcp' && admin.port === 0)) return false
  return formatAddress(address) === formatAddress(admin)
}
