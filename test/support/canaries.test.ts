/** The search for secrets finds each form in which one could get out. */

import { gzipSync } from 'node:zlib'
import { expect, test } from 'vitest'
import { Canaries, randomMarker, randomSecret } from './canaries.ts'

const secret = randomSecret()
const marker = randomMarker()
const canaries = new Canaries().add('secret', secret).add('token', marker)

test.each<[string, string | Buffer]>([
  ['plain', secret],
  ['inside base64(id:secret), whatever stands before it', Buffer.from(`id:${secret}`).toString('base64')],
  ['one byte further', Buffer.from(`id2:${secret}`).toString('base64')],
  ['two bytes further', Buffer.from(`id22:${secret} and more`).toString('base64url')],
  ['hex', Buffer.from(secret).toString('hex').toUpperCase()],
  ['URL-escaped', encodeURIComponent(secret)],
  ['form-escaped', new URLSearchParams({ secret }).toString()],
  ['JSON in JSON', JSON.stringify({ text: JSON.stringify({ secret }) })],
  ['among bytes that are no text', Buffer.concat([Buffer.from([0xff, 0xfe, 0x00]), Buffer.from(secret)])],
])('finds a secret: %s', (_, found) => {
  const bytes = Buffer.concat([Buffer.from('before '), Buffer.from(found), Buffer.from(' behind')])
  expect(canaries.search(bytes)).toContainEqual(expect.objectContaining({ canary: 'secret' }))
})

test('finds every token with its marker, and nothing where there is nothing', () => {
  expect(canaries.search(`Bearer tok-acme-1-${marker}77af`)).toEqual([{ canary: 'token', form: 'plain' }])
  expect(canaries.search(`another ${randomSecret()}`)).toEqual([])
  expect(canaries.search(gzipSync(secret))).toEqual([])
})
