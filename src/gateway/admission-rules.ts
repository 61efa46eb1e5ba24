/** The rules of admission, made from the settings. */

import { createHash, timingSafeEqual } from 'node:crypto'
import type { RoutePattern } from '../callers/callers.ts'
import { type BoundAddress, hostsAt } from '../http1/host.ts'
import { targetPrefix } from '../http1/target.ts'
import type { Secret, SecretHeaders } from '../secret.ts'
import type { AdmissionRules } from './admission.ts'
import { fieldRulesBeside, type TokenField } from './fields.ts'

interface AdmissionSettings {
  readonly baseUrl: URL
  readonly listen: {
    readonly address: BoundAddress | 'off'
    readonly hosts: readonly string[]
    readonly refuseForwarded: boolean
    readonly callerKeyFile?: { readonly content: Secret } | undefined
  }
  readonly origin: { readonly sendCookies: boolean; readonly secretHeaders?: SecretHeaders | undefined }
  readonly orgs: {
    readonly allow: readonly string[]
    readonly ids?: AdmissionRules['namedOrgs']
    readonly pattern: RegExp
  }
  readonly routes: { readonly allow: readonly RoutePattern[]; readonly allowTokenEndpoint: boolean }
  readonly appRoutes: readonly RoutePattern[]
  readonly tokens: { readonly header: TokenField }
}

export function admissionRules(
  { baseUrl, listen, origin, orgs, routes, appRoutes, tokens }: AdmissionSettings,
  { callers, isTokenEndpoint, instance }: Pick<AdmissionRules, 'callers' | 'isTokenEndpoint' | 'instance'>,
): AdmissionRules {
  return {
    hosts: hostsAt(listen.address, listen.hosts),
    refuseForwarded: listen.refuseForwarded,
    isCallerKey: listen.callerKeyFile && callerKeyCheck(listen.callerKeyFile.content),
    callers,
    orgPattern: orgs.pattern,
    allowedOrgs: new Set(orgs.allow),
    namedOrgs: orgs.ids,
    allowedRoutes: routes.allow,
    sendCookies: origin.sendCookies,
    fieldRules: fieldRulesBeside([tokens.header.name, ...Object.keys(origin.secretHeaders ?? {})]),
    isTokenEndpoint,
    allowTokenEndpoint: routes.allowTokenEndpoint,
    appRoutes,
    targetPrefix: targetPrefix(baseUrl),
    instance,
    serviceHost: baseUrl.host,
  }
}

/** Compares in constant time. Digests have one length, so the time says nothing about the length of the key either. */
function callerKeyCheck(key: Secret): (value: string) => boolean {
  const digest = (text: string) => createHash('sha256').update(text, 'latin1').digest()
  const expected = digest(key.reveal())
  return (value) => timingSafeEqual(digest(value), expected)
}
