/** What a call of the token endpoint must show and hold, as the switches say. */

import { createPublicKey } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { unescape as percentDecoded } from 'node:querystring'
import { text } from 'node:stream/consumers'
import type { JWTVerifyOptions } from 'jose'
import { wallClock } from './issued-tokens.ts'
import type { Assertion, Members, Switches } from './switches.ts'

/** A form or a JSON object of texts; empty if it is neither. */
export async function readContent(request: IncomingMessage): Promise<Members> {
  const content = await text(request)
  if (!/json/.test(request.headers['content-type'] ?? '')) return Object.fromEntries(new URLSearchParams(content))
  try {
    return Object(JSON.parse(content))
  } catch {
    return {}
  }
}

type Content = Pick<Switches, 'tokenForm' | 'tokenJson'>

/** Empty if the content does not name the org. */
export function orgIn(content: Members, { tokenForm, tokenJson }: Content): string {
  const [name = ''] = Object.entries({ ...tokenForm, ...tokenJson }).find(([, value]) => value === '{orgId}') ?? []
  return content[name] ?? ''
}

export function hasMembers(content: Members, { tokenForm, tokenJson }: Content): boolean {
  const expected = Object.entries({ ...tokenForm, ...tokenJson })
  return expected.every(([name, value]) => (value === '{orgId}' ? content[name] : content[name] === value))
}

/** Empty if the header is not as `tokenHeader` says. The name of a scheme has no case (RFC 9110 §11.1). */
export function tokenIn({ headers }: IncomingMessage, tokenHeader: string): string {
  const [, name = '', before = '', after = ''] = /^(.*?): (.*)\{token\}(.*)$/.exec(tokenHeader) ?? []
  const value = String(headers[name.toLowerCase()] ?? '')
  if (!value.toLowerCase().startsWith(before.toLowerCase()) || !value.endsWith(after)) return ''
  return value.slice(before.length, value.length - after.length).trimStart()
}

export function hasHeaders({ headers }: IncomingMessage, expected: Members = {}): boolean {
  return Object.entries(expected).every(([name, value]) => headers[name.toLowerCase()] === value)
}

/** Basic (RFC 7617) or Bearer (RFC 6750) credentials. */
export function credentialsOf(request: IncomingMessage, scheme: 'basic' | 'bearer'): string | undefined {
  const [, given, credentials] = /^(basic|bearer) +(\S+)$/i.exec(request.headers.authorization ?? '') ?? []
  return given?.toLowerCase() === scheme ? credentials : undefined
}

type App = Switches & { readonly appId: string }

/** `url` is the audience of an assertion. */
export async function isProven(app: App, request: IncomingMessage, content: Members, url: string): Promise<boolean> {
  const { appId, tokenAuth, decodesBasic, tokenAssertion } = app
  const secrets = [app.appSecret].flat()
  const currentDate = new Date(wallClock(app))
  switch (tokenAuth) {
    case 'basic': {
      const pair = Buffer.from(credentialsOf(request, 'basic') ?? '', 'base64').toString()
      const [, id, secret] =
        /^([^:]*):(.*)$/s.exec(pair)?.map((part) => (decodesBasic ? formDecoded(part) : part)) ?? []
      return id === appId && secret !== undefined && secrets.includes(secret)
    }
    case 'form':
      return content['client_id'] === appId && secrets.includes(content['client_secret'] ?? '')
    case 'jwt':
      return await isSigned(credentialsOf(request, 'bearer'), secrets, {
        issuer: appId,
        ...tokenAssertion,
        currentDate,
      })
    case 'assertion': {
      const claims = { issuer: appId, subject: appId, audience: url, ...tokenAssertion, currentDate }
      return await isSigned(content['client_assertion'], secrets, { ...claims, requiredClaims: ['jti', 'exp'] })
    }
  }
}

function formDecoded(part: string): string {
  return percentDecoded(part.replaceAll('+', ' '))
}

interface Claims extends Assertion {
  readonly currentDate: Date
  readonly requiredClaims?: string[]
}

/** Not by a clock that is ahead of ours. */
async function isSigned(jwt: string | undefined, keys: readonly string[], claims: Claims): Promise<boolean> {
  if (jwt === undefined) return false
  const { jwtVerify } = await import('jose')
  for (const key of keys) {
    const { keyId, algorithm, currentDate } = claims
    const isBy = await jwtVerify(jwt, createPublicKey(key), claims as JWTVerifyOptions).then(
      ({ payload: { iat = 0 }, protectedHeader: { kid, alg } }) =>
        iat <= currentDate.getTime() / 1_000 && (keyId ?? kid) === kid && (algorithm ?? alg) === alg,
      () => false,
    )
    if (isBy) return true
  }
  return false
}
