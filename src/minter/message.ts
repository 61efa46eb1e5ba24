/** What a sidecar and its minter say to each other. */

import { hash } from 'node:crypto'
import { type ErrorCode, PROBLEMS } from '../errors.ts'
import { isToken, memberOf } from '../token/token-reply.ts'
import type { AccessToken } from '../token/token-source.ts'

/** A token, as the minter gives it. `id` is opaque to the sidecar. The life is null if none is stated. */
export interface GivenToken {
  readonly id: string
  readonly token: string
  readonly ageMs: number
  readonly statedLifeMs: number | null
}

/** The same at all minters. */
export const idOf = (token: AccessToken): string => hash('sha256', token.reveal(), 'base64url').slice(0, 22)

const MAX_ID_LENGTH = 64
/** The content of a sidecar's request: the id of the token that the service has rejected, if there is one. @throws {SyntaxError} */
export function readRequest(content: Buffer): string | undefined {
  const rejected = content.length === 0 ? undefined : memberOf(JSON.parse(content.toString()), 'rejected')
  if (rejected === undefined || (typeof rejected === 'string' && rejected.length <= MAX_ID_LENGTH)) return rejected
  throw new SyntaxError('not an id')
}

/** A refusal or a failure, as the minter tells it. */
export interface MinterProblem {
  readonly code: ErrorCode
  readonly tokenEndpointStatus: number | undefined
}

/** What a minter has answered; undefined if no minter answers so. */
export function readAnswer(status: number, content: Buffer): GivenToken | MinterProblem | undefined {
  let value: unknown
  try {
    value = JSON.parse(content.toString())
  } catch {
    return undefined
  }
  return status === 200 ? givenTokenIn(value) : problemIn(value, status)
}

function givenTokenIn(value: unknown): GivenToken | undefined {
  const [id, token] = [memberOf(value, 'id'), memberOf(value, 'token')]
  const [ageMs, statedLifeMs] = ['ageMs', 'statedLifeMs'].map((name) => spanIn(value, name))
  const isSound = typeof id === 'string' && id.length <= MAX_ID_LENGTH && isToken(token)
  if (!isSound || ageMs === undefined || statedLifeMs === undefined) return undefined
  return { id, token, ageMs: ageMs ?? 0, statedLifeMs }
}

/** Null if there is none, undefined if it is no time. */
function spanIn(value: unknown, name: string): number | null | undefined {
  const ms = memberOf(value, name) ?? null
  return ms === null || (typeof ms === 'number' && ms >= 0) ? ms : undefined
}

function problemIn(value: unknown, status: number): MinterProblem | undefined {
  const code = memberOf(value, 'code')
  if (typeof code !== 'string' || !isErrorCode(code) || PROBLEMS[code].status !== status) return undefined
  const told = memberOf(value, 'tokenEndpointStatus')
  const isStatus = typeof told === 'number' && told >= 300 && told <= 599
  return { code, tokenEndpointStatus: isStatus ? told : undefined }
}

const isErrorCode = (code: string): code is ErrorCode => Object.hasOwn(PROBLEMS, code)
