/** Objects with a secret print nothing of it, however they are turned into text, and inside any other object. */

import { inspect } from 'node:util'
import { expect, test } from 'vitest'
import type { OrgId } from '../../../src/org-id.ts'
import { Secret } from '../../../src/secret.ts'
import { AppCredentials } from '../../../src/token/app-credentials.ts'
import { AppKey } from '../../../src/token/app-key.ts'
import { AccessToken } from '../../../src/token/token-source.ts'
import { Canaries, randomMarker, randomSecret } from '../../support/canaries.ts'
import { startService } from '../../support/service.ts'
import { EndpointUnderTest } from '../../units/token/endpoint-under-test.ts'

const secret = randomSecret()
const token = `tok-${randomMarker()}`
const canaries = new Canaries()
  .add('App secret', secret)
  .add('API key', Buffer.from(`app:${secret}`).toString('base64'))
  .add('token', token)

// `test/units/config/load.test.ts` has the configuration.
test.each<[string, object]>([
  ['a Secret', new Secret(secret)],
  ['the credentials', new AppCredentials(new AppKey('app', new Secret(secret)))],
  ['a token', new AccessToken(token, 0, undefined)],
])('%s', (_, value) => {
  const texts = [
    inspect(value, { depth: 20, showHidden: true, getters: true }),
    JSON.stringify({ value }) ?? '',
    String(value),
    `${(value as { message?: string }).message}`,
    JSON.stringify(Object.entries(value)),
    inspect(new Error('with it', { cause: value }), { depth: 20, showHidden: true }),
    inspect(structuredClone(JSON.parse(JSON.stringify({ value })))),
  ]
  expect(canaries.search(texts.join('\n'))).toEqual([])
})

test('the error of a mint, with all its causes', async () => {
  await using service = await startService({
    appSecret: secret,
    mint: (mint) => {
      if (mint.org === 'reset') mint.request.connection.reset()
      return mint.org === 'reset' ? undefined : { status: 500, content: mint.request.values('authorization').join() }
    },
  })
  await using client = new EndpointUnderTest(service)
  const found = new Canaries().add('App secret', secret).add('API key', service.tokens.apiKey)
  for (const org of ['reset', 'failing'] as OrgId[]) {
    const error: unknown = await client.endpoint.mint(org).catch((reason: unknown) => reason)
    expect(error).toBeInstanceOf(Error)
    expect(found.search(inspect(error, { depth: 20, showHidden: true }))).toEqual([])
  }
})
