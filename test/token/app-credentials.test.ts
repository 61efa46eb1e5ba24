import { inspect } from 'node:util'
import { expect, test } from 'vitest'
import { Secret } from '../../src/secret.ts'
import { AppCredentials } from '../../src/token/app-credentials.ts'
import { Canaries, randomSecret } from '../support/canaries.ts'

const decode = (authorization: string) => Buffer.from(authorization.replace('Basic ', ''), 'base64').toString('utf8')

test('the App key is the base64 of id and secret, whatever the secret holds', () => {
  const credentials = new AppCredentials('app-1', new Secret('a:b/ü€"'))
  expect(credentials.authorization()).toMatch(/^Basic [A-Za-z0-9+/]+=*$/)
  expect(decode(credentials.authorization())).toBe('app-1:a:b/ü€"')
})

test('another secret replaces the one before', () => {
  const credentials = new AppCredentials('app', new Secret('old'))
  credentials.replace(new Secret('new'))
  expect(decode(credentials.authorization())).toBe('app:new')
  expect(credentials.holds(new Secret('new'))).toBe(true)
  expect(credentials.holds(new Secret('old'))).toBe(false)
})

test('trying out other credentials does not change those in use', () => {
  const credentials = new AppCredentials('app', new Secret('old'))
  expect(decode(credentials.withSecret(new Secret('new')).authorization())).toBe('app:new')
  expect(decode(credentials.authorization())).toBe('app:old')
})

test('nothing that prints the credentials prints the secret', () => {
  const secret = randomSecret()
  const credentials = new AppCredentials('app', new Secret(secret))
  const printed = [String(credentials), JSON.stringify({ credentials }), inspect({ credentials }, { depth: 9 })]
  expect(new Canaries().add('secret', secret).search(printed.join('\n'))).toEqual([])
})
