import { gzipSync } from 'node:zlib'
import { expect, test } from 'vitest'
import { Canaries, randomMarker, randomSecret } from './canaries.ts'

const secret = randomSecret()
const canaries = new Canaries().add('secret', secret)

test.each([
  ['plain', secret],
  ['inside base64(id:secret), whatever stands before it', Buffer.from(`id:${secret}`).toString('base64')],
  ['one byte further', Buffer.from(`id2:${secret}`).toString('base64')],
  ['two bytes further', Buffer.from(`id22:${secret} and more`).toString('base64url')],
  ['hex', Buffer.from(secret).toString('hex').toUpperCase()],
  ['URL-escaped', encodeURIComponent(secret)],
  ['form-escaped', new URLSearchParams({ secret }).toString()],
  ['JSON', JSON.stringify({ level: 'info', secret })],
  ['JSON in JSON', JSON.stringify({ text: JSON.stringify({ secret }) })],
])('finds a secret: %s', (_, text) => {
  expect(canaries.search(`before ${text} behind`)).toContainEqual(expect.objectContaining({ canary: 'secret' }))
})

test('finds nothing where there is nothing', () => {
  expect(canaries.search(`another ${randomSecret()}`)).toEqual([])
  expect(canaries.search(gzipSync(secret))).toEqual([])
})

test('searches bytes that are no text', () => {
  const bytes = Buffer.concat([Buffer.from([0xff, 0xfe, 0x00]), Buffer.from(secret), Buffer.from([0x80])])
  expect(canaries.search(bytes)).not.toEqual([])
})

test('a marker finds every token that it is part of', () => {
  const marker = randomMarker()
  const tokens = new Canaries().add('token', marker)
  expect(tokens.search(`Bearer tok-acme-1-${marker}77af`)).toEqual([{ canary: 'token', form: 'plain' }])
})
