import { inspect } from 'node:util'
import { expect, test } from 'vitest'
import { AccessToken } from '../../src/token/token-source.ts'
import { Canaries, randomMarker } from '../support/canaries.ts'

test('a token is revealed only as the value of its field', () => {
  const marker = randomMarker()
  const token = new AccessToken(marker, 0)
  expect(token.reveal()).toBe(`Bearer ${marker}`)
  const printed = [String(token), JSON.stringify({ token }), inspect({ token }, { depth: 9, showHidden: true })]
  expect(new Canaries().add('token', marker).search(printed.join('\n'))).toEqual([])
})
