/** The token endpoint's answer, read with suspicion: a token goes into a field of every request for its org. */

import { AccessToken } from './access-token.ts'

/** Every string of a JSON text in order; the group is there where it is a member's name. */
const JSON_STRINGS = /("(?:[^"\\]|\\.)*")(\s*:)?/g
const MEMBER = 'orgAccessToken'

/** The token, or undefined where there is none to rely on. */
export function readOrgAccessToken(content: Buffer): string | undefined {
  const text = content.toString('utf8')
  const reply = parseJson(text)
  if (typeof reply !== 'object' || reply === null || !Object.hasOwn(reply, MEMBER)) return undefined
  const token: unknown = Reflect.get(reply, MEMBER)
  // Two members of that name: which one counts is anybody's guess (RFC 8259 §4).
  if (!AccessToken.isUsable(token) || countMembers(text) !== 1) return undefined
  return token
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function countMembers(text: string): number {
  let count = 0
  for (const [, name, colon] of text.matchAll(JSON_STRINGS)) {
    if (colon !== undefined && name !== undefined && parseJson(name) === MEMBER) count += 1
  }
  return count
}
