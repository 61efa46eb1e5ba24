/** A minimal client of the service: gets a token, and uses it. */

import type { Sandbox } from '../../../src/sandbox/sandbox.ts'

export function basic(appId: string, appSecret: string): string {
  return `Basic ${Buffer.from(`${appId}:${appSecret}`).toString('base64')}`
}

export function callTokenEndpoint(sandbox: Sandbox, org: string, authorization?: string): Promise<Response> {
  return fetch(`${sandbox.baseUrl}/v2/orgs/${org}/access`, {
    method: 'POST',
    headers: { authorization: authorization ?? basic(sandbox.appId, sandbox.appSecret) },
  })
}

export async function mint(sandbox: Sandbox, org: string): Promise<string> {
  const response = await callTokenEndpoint(sandbox, org)
  if (response.status !== 200) throw new Error(`the token endpoint answered ${response.status}`)
  const { orgAccessToken } = (await response.json()) as { orgAccessToken: string }
  return orgAccessToken
}

export function call(sandbox: Sandbox, path: string, token: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers)
  headers.set('authorization', `Bearer ${token}`)
  return fetch(`${sandbox.baseUrl}${path}`, { ...init, headers })
}

export async function errorOf(response: Response): Promise<string> {
  const { error } = (await response.json()) as { error: string }
  return error
}
