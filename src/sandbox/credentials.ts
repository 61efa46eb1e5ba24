/** The two ways in which a request of the service shows who sent it (RFC 7617, RFC 6750). */

import type { IncomingMessage } from 'node:http'

const AUTHORIZATION = /^(basic|bearer) +([^\s]+)$/i

export interface AppCredentials {
  readonly appId: string
  readonly appSecret: string
}

export function bearerTokenOf(request: IncomingMessage): string | undefined {
  return credentialsOf(request, 'bearer')
}

export function appCredentialsOf(request: IncomingMessage): AppCredentials | undefined {
  const encoded = credentialsOf(request, 'basic')
  if (encoded === undefined) return undefined
  const pair = Buffer.from(encoded, 'base64').toString('utf8')
  const colonAt = pair.indexOf(':') // only the first one separates: a secret may hold more
  if (colonAt === -1) return undefined
  return { appId: pair.slice(0, colonAt), appSecret: pair.slice(colonAt + 1) }
}

function credentialsOf(request: IncomingMessage, scheme: string): string | undefined {
  const [, given, credentials] = AUTHORIZATION.exec(request.headers.authorization ?? '') ?? []
  return given?.toLowerCase() === scheme ? credentials : undefined
}
