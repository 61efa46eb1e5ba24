import { describe, expect, test } from 'vitest'
import { Secret } from '../../../src/secret.ts'
import { AppCredentials } from '../../../src/token/app-credentials.ts'
import { AppKey } from '../../../src/token/app-key.ts'

const keyOf = (secret: string) => new AppKey('app', new Secret(secret))
const named = (keys: readonly AppKey[]) => keys.map(({ secret }) => secret.reveal()).join(' ')

describe('two secrets', () => {
  /** A service that accepts some secrets, and a file. */
  class Rotation {
    readonly events: string[] = []
    accepted: readonly string[] = ['a']
    nowMs = 0
    readonly #credentials = new AppCredentials(
      keyOf('a'),
      (state, inUse) => this.events.push(`${state}: uses ${inUse.reveal()}`),
      () => this.nowMs,
    )

    offer(...secrets: string[]): void {
      for (const secret of secrets) this.#credentials.offer(keyOf(secret))
    }

    /** The secrets that one mint tried. */
    mint(onCall = () => {}): string {
      const tried: AppKey[] = []
      for (
        let key: AppKey | undefined = this.#credentials.key;
        key !== undefined;
        key = this.#credentials.next(tried)
      ) {
        tried.push(key)
        const isAccepted = this.#call(key)
        onCall()
        if (isAccepted) return named(tried)
        this.#credentials.rejected(key)
      }
      return `${named(tried)} failed`
    }

    #call(key: AppCredentials['key']): boolean {
      const isAccepted = this.accepted.includes(key.secret.reveal())
      if (isAccepted) this.#credentials.accepted(key)
      return isAccepted
    }

    get isLatestRejected(): boolean {
      return this.#credentials.state === 'rejected'
    }
  }

  test('the service takes the new one over between the two calls: it is tried once more', () => {
    const rotation = new Rotation()
    rotation.mint()
    rotation.offer('b')
    const switchAtOnce = () => {
      rotation.accepted = ['b']
    }
    expect(rotation.mint(switchAtOnce)).toBe('b a b')
    // Both are rejected for another reason: the next mint costs no third call.
    rotation.accepted = []
    expect(rotation.mint()).toBe('b a failed')
  })

  test('the one before is tried until the new one was accepted, and for ten minutes after that', () => {
    const rotation = new Rotation()
    rotation.mint()
    rotation.offer('b')
    rotation.nowMs += 3_600_000
    expect(rotation.mint()).toBe('b a')
    rotation.accepted = ['b']
    rotation.mint()
    rotation.nowMs += 9 * 60_000
    rotation.accepted = ['a']
    expect([rotation.mint(), rotation.mint()]).toEqual(['b a', 'a'])
    rotation.accepted = ['b']
    rotation.mint()
    rotation.nowMs += 10 * 60_000
    rotation.accepted = []
    expect(rotation.mint()).toBe('b failed')
  })

  test('a service that takes it over later costs one call more, then and now', () => {
    const rotation = new Rotation()
    rotation.mint()
    rotation.offer('b')
    expect([rotation.mint(), rotation.mint()]).toEqual(['b a', 'a'])
    expect(rotation.isLatestRejected).toBe(true)
    rotation.accepted = ['b']
    expect([rotation.mint(), rotation.mint()]).toEqual(['a b', 'b'])
    expect(rotation.isLatestRejected).toBe(false)
    expect(rotation.events).toEqual(['loaded: uses b', 'rejected: uses a', 'accepted: uses b'])
  })

  test('half a secret does not drive out the one that works, also before the first mint', () => {
    for (const isWarm of [true, false]) {
      const rotation = new Rotation()
      if (isWarm) rotation.mint()
      rotation.offer('ha', 'half', 'other')
      expect([rotation.mint(), rotation.mint()]).toEqual(['other a', 'a'])
    }
  })

  test('a file that goes back to the secret before, judged or not: each is tried once', () => {
    for (const isJudged of [true, false]) {
      const rotation = new Rotation()
      rotation.offer('b')
      if (isJudged) rotation.mint()
      rotation.offer('a')
      expect(rotation.mint()).toBe('a')
      rotation.accepted = []
      expect(rotation.mint()).toBe('a b failed')
    }
  })

  test('the 401 of one org changes nothing for the others', () => {
    const rotation = new Rotation()
    rotation.accepted = ['a', 'b']
    rotation.mint()
    rotation.offer('b')
    rotation.mint()
    rotation.accepted = []
    expect(rotation.mint()).toBe('b a failed')
    rotation.accepted = ['a', 'b']
    expect([rotation.mint(), ...rotation.events]).toEqual(['b', 'loaded: uses b', 'accepted: uses b'])
  })

  test('the same file again is no news, and a late success of the old secret does not bring it back', () => {
    const states: string[] = []
    const credentials = new AppCredentials(keyOf('a'), (state) => states.push(state))
    const old = credentials.key
    credentials.rejected(old)
    credentials.offer(keyOf('b'))
    credentials.accepted(old)
    credentials.offer(keyOf('b'))
    expect(credentials.key.secret.reveal()).toBe('b')
    expect(states).toEqual(['loaded'])
  })
})
