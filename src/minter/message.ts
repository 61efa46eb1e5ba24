/** What a sidecar and its minter say to each other. */

import { hash } from 'node:crypto'
import { isToken, memberOf } from '../token/token-reply.ts'
import type { AccessToken } from '../token/token-source.ts'

/** A token, as the minter gives it. `id` is opaque to the sidecar. A life that nobody knows is null. */
export interface GivenToken {
  readonly id: string
  readonly token: string
  readonly ageMs: number
  readonly statedLifeMs: number | null
  readonly knownLifeMs: number | null
}

export const textOf = (token: AccessToken): string => token.reveal().slice('Bearer '.length)

/** The same at all minters. */
export const idOf = (token: AccessToken): string => hash('sha256', textOf(token), 'base64url').slice(0, 22)

const MAX_ID_LENGTH = 64
/** The content of a sidecar's request: the id of the token that the service has rejected, if there is one. @throws {SyntaxError} */
export function readRequest(content: Buffer): string | undefined {
  const rejected = content.length === 0 ? undefined : memberOf(JSON.parse(content.toString()), 'rejected')
  if (rejected === undefined || (typeof rejected === 'string' && rejected.length <= MAX_ID_LENGTH)) return rejected
  throw new SyntaxError('not an id')
}

/** The content of a minter's answer. @throws */
export function readGivenToken(content: Buffer): GivenToken {
  const value: unknown = JSON.parse(content.toString())
  const [id, token] = [memberOf(value, 'id'), memberOf(value, 'token')]
  const isSound = typeof id === 'string' && id.length <= MAX_ID_LENGTH && isToken(token)
  if (!isSound) throw new TypeError('no usable token')
  const span = (name: string): number | null => {
    const ms = memberOf(value, name) ?? null
    if (ms === null || (typeof ms === 'number' && ms >= 0)) return ms
    throw new TypeError('no usable time')
  }
  return { id, token, ageMs: span('ageMs') ?? 0, statedLifeMs: span('statedLifeMs'), knownLifeMs: span('knownLifeMs') }
}
