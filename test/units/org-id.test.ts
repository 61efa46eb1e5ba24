import { describe, expect, test } from 'vitest'
import { MAX_ORG_ID_LENGTH, parseOrgId } from '../../src/org-id.ts'

// `test/attacks/org-confusion.test.ts` sends ids under the default pattern.
describe('an org id', () => {
  test.each(['.', '..', 'a b', 'a\u0000', 'é', 'a/b', 'a\\b', 'a?b', 'a#b', 'a%b', 'a,b'])(
    'not %j, even if the pattern accepts everything',
    (id) => {
      expect(parseOrgId(id, /^[\s\S]*$/)).toBeUndefined()
    },
  )

  test('its length is checked before the pattern, which may backtrack', () => {
    const looked: string[] = []
    const pattern = /^a*$/
    pattern.test = (value) => looked.push(value) > 0
    expect(parseOrgId('a'.repeat(MAX_ORG_ID_LENGTH), pattern)).toBeDefined()
    expect(parseOrgId('a'.repeat(MAX_ORG_ID_LENGTH + 1), pattern)).toBeUndefined()
    expect(looked).toHaveLength(1)
  })
})
