import { describe, expect, test } from 'vitest'
import { FleetKeys } from '../../../src/fleet/sealing.ts'
import type { OrgId } from '../../../src/org-id.ts'
import { Secret } from '../../../src/secret.ts'

const ACME = 'acme' as OrgId
const GLOBEX = 'globex' as OrgId
const IDENTITY = {
  appId: 'app',
  baseUrl: 'https://api.example.com',
  tokenRequest: '["POST"]',
  appSecret: new Secret('correct horse'),
}
const keys = new FleetKeys(IDENTITY)
const content = 'an org access token'
const sealed = keys.seal(ACME, content)

function flip(text: string, bit: number): string {
  const bytes = Buffer.from(text, 'base64')
  bytes[bit >> 3] = (bytes[bit >> 3] ?? 0) ^ (1 << (bit & 7))
  return bytes.toString('base64')
}

describe('a value counts as absent', () => {
  test.each<[string, () => string | undefined]>([
    ['for another org', () => keys.open(GLOBEX, sealed)],
    ['under another secret', () => keysWith({ appSecret: new Secret('correct horsf') }).open(ACME, sealed)],
    ['for another App', () => keysWith({ appId: 'app2' }).open(ACME, sealed)],
    ['for another service', () => keysWith({ baseUrl: 'https://api.example.org' }).open(ACME, sealed)],
    ['for another token request', () => keysWith({ tokenRequest: '["GET"]' }).open(ACME, sealed)],
    [
      'with an App id that took a part of the URL',
      () => keysWith({ appId: 'apphttps', baseUrl: '://api.example.com' }).open(ACME, sealed),
    ],
    ['empty', () => keys.open(ACME, '')],
    ['no base64', () => keys.open(ACME, `${sealed.slice(0, 8)}\n${sealed.slice(8)}`)],
    ['base64url', () => keys.open(ACME, `${sealed}=`)],
    ['a text of a stranger', () => keys.open(ACME, 'x'.repeat(200))],
  ])('%s', (_, open) => {
    expect(open()).toBeUndefined()
  })

  test('with any bit changed', () => {
    for (let bit = 0; bit < Buffer.from(sealed, 'base64').length * 8; bit += 1) {
      expect(keys.open(ACME, flip(sealed, bit)), `bit ${bit}`).toBeUndefined()
    }
  })

  test('cut at any place, or longer', () => {
    const bytes = Buffer.from(sealed, 'base64')
    for (let length = 0; length < bytes.length; length += 1) {
      expect(keys.open(ACME, bytes.subarray(0, length).toString('base64'))).toBeUndefined()
    }
    expect(keys.open(ACME, Buffer.concat([bytes, Buffer.of(0)]).toString('base64'))).toBeUndefined()
  })
})

test('nothing reveals the org, the token, or that two contents are the same; printing the keys shows nothing', () => {
  expect(keys.seal(ACME, content)).not.toBe(sealed)
  expect(`${keys} ${JSON.stringify({ keys })}`).toBe('[redacted] {"keys":"[redacted]"}')
  const names = ['acme', 'globex', 'acme ', 'ACME'].map((org) => keys.nameOf(org as OrgId))
  expect(new Set(names).size).toBe(4)
  for (const name of [...names, keys.markOf(ACME, 'token')]) expect(name).toMatch(/^[\w-]{22}$/)
  expect(keys.markOf(ACME, 'token')).not.toBe(keys.markOf(GLOBEX, 'token'))
  expect(keysWith({ appSecret: new Secret('other') }).nameOf(ACME)).not.toBe(keys.nameOf(ACME))
})

function keysWith(change: Partial<typeof IDENTITY>): FleetKeys {
  return new FleetKeys({ ...IDENTITY, ...change })
}
