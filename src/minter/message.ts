/** What a sidecar and its minter say to each other. */

import { hash } from 'node:crypto'
import type { OrgId } from '../org-id.ts'
import { memberOf } from '../token/token-reply.ts'
import type { AccessToken } from '../token/token-source.ts'

/** A token, as the minter gives it. A life that nobody knows is null. */
export interface GivenToken {
  /** Opaque to the sidecar, and the same at all minters. */
  readonly id: string
  readonly token: string
  readonly ageMs: number
  readonly statedLifeMs: number | null
  readonly knownLifeMs: number | null
}

export const TOKEN_ROUTE = 'POST /v1/orgs/{orgId}/token'

export function tokenTarget(org: OrgId): string {
  return `/v1/orgs/${encodeURIComponent(org)}/token`
}

/** The org id in a target, not checked yet; undefined if it is none of `tokenTarget`. */
export function orgIn(target: string): string | undefined {
  const [, segment] = /^\/v1\/orgs\/([^/?#]{1,1024})\/token$/.exec(target) ?? []
  try {
    return segment && decodeURIComponent(segment)
  } catch {
    return undefined
  }
}

export function textOf(token: AccessToken): string {
  return token.reveal().slice('Bearer '.length)
}

const ID_BYTES = 16

export function idOf(token: AccessToken): string {
  return hash('sha256', textOf(token), 'buffer').subarray(0, ID_BYTES).toString('base64url')
}

/** The content of a sidecar's request: the id of the token that the service has rejected, if there is one. @throws */
export function readRequest(content: Buffer): string | undefined {
  if (content.length === 0) return undefined
  const value: unknown = JSON.parse(content.toString())
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new TypeError('not an object')
  const rejected = memberOf(value, 'rejected')
  if (rejected === undefined || (typeof rejected === 'string' && rejected.length <= 64)) return rejected
  throw new TypeError('not an id')
}

/** Visible ASCII without white space is one word of a field value (RFC 9110 §5.5). */
const TOKEN = /^[\x21-\x7e]{1,16384}$/

/** The content of a minter's answer. @throws */
export function readGivenToken(content: Buffer): GivenToken {
  const value: unknown = JSON.parse(content.toString())
  const [id, token] = [memberOf(value, 'id'), memberOf(value, 'token')]
  if (typeof id !== 'string' || id.length > 64 || typeof token !== 'string' || !TOKEN.test(token)) {
    throw new TypeError('no usable token')
  }
  const [ageMs, statedLifeMs, knownLifeMs] = ['ageMs', 'statedLifeMs', 'knownLifeMs'].map((name) => {
    const span = memberOf(value, name) ?? null
    if (span === null || (typeof span === 'number' && span >= 0)) return span
    throw new TypeError('no usable time')
  })
  return { id, token, ageMs: ageMs ?? 0, statedLifeMs: statedLifeMs ?? null, knownLifeMs: knownLifeMs ?? null }
}
