/**
 * Attacks on the key set of a caller's issuer. An attacker with the keys can be any caller of that issuer. A server of key
 * sets that hangs or answers falsely must not lock out callers with good tokens.
 */

import { readFileSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type KeySet, parseKeySet } from '../../src/callers/jwt.ts'
import { RemoteKeySet, type RemoteKeySetOptions } from '../../src/callers/key-sets.ts'
import { contextTrusting } from '../../src/trusted-certificates.ts'
import { makeIssuer } from '../callers/issuer.ts'
import { KeySetServer } from '../callers/key-set-server.ts'
import { CA_FILE } from '../support/certificates.ts'
import { Changes } from '../support/changes.ts'

const secureContext = contextTrusting(readFileSync(CA_FILE, 'utf8'))

class Watched implements Disposable {
  readonly sets: KeySet[] = []
  readonly problems: string[] = []
  /** For each problem, whether a good set was in use. */
  readonly inUse: boolean[] = []
  recoveries = 0
  readonly changes = new Changes()
  readonly keySet: RemoteKeySet

  constructor(url: string, options: Partial<RemoteKeySetOptions> = {}) {
    this.keySet = new RemoteKeySet({
      url,
      secureContext,
      tokenFile: undefined,
      onChanged: (keySet) => {
        this.sets.push(keySet)
        this.changes.notify()
      },
      onProblem: (text, isFormerInUse) => {
        this.problems.push(text)
        this.inUse.push(isFormerInUse)
        this.changes.notify()
      },
      onRecovered: () => {
        this.recoveries++
        this.changes.notify()
      },
      minIntervalMs: 0,
      ...options,
    })
  }

  untilTold(): Promise<void> {
    return this.changes.until(() => this.sets.length + this.problems.length > 0, 'a set or a problem')
  }

  [Symbol.dispose](): void {
    this.keySet.close()
  }
}

let server: KeySetServer
let jwks: string

beforeEach(async () => {
  jwks = (await makeIssuer()).jwks
  server = await KeySetServer.start(jwks)
})

afterEach(async () => {
  await server[Symbol.asyncDispose]()
})

describe('a server that answers falsely', () => {
  test.each([
    ['HTML', '<html>', 'is not JSON'],
    ['nothing', '', 'is not JSON'],
    ['a list', '[]', 'is not a JSON Web Key Set'],
    ['no keys', '{"keys":[]}', 'has no public key for RS256, PS256, ES256, EdDSA'],
    ['only a secret', '{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}', 'has no public key for'],
    ['half a key', '{"keys":[{"kty":"EC","crv":"P-256","x":"AA"}]}', 'has no public key for'],
    [
      'thousands of keys',
      JSON.stringify({ keys: Array.from({ length: 101 }, () => ({ kty: 'RSA' })) }),
      'has more than 100 keys',
    ],
    ['a set without end', ' '.repeat(70_000), 'is larger than 64 KiB'],
  ])('%s: the last good set stays', async (_, body, problem) => {
    using watched = new Watched(server.url)
    await watched.untilTold()
    server.answer = (response) => response.end(body)
    await watched.keySet.refresh()
    expect(watched.problems).toEqual([expect.stringContaining(problem)])
    expect(watched.inUse).toEqual([true])
    expect(watched.sets).toEqual([parseKeySet(jwks)])
    server.answer = (response) => response.end(jwks)
    await watched.keySet.refresh()
    expect([watched.recoveries, watched.sets.length]).toEqual([1, 1])
  })

  test.each([404, 500, 204, 401])('status %i', async (status) => {
    server.answer = (response) => response.writeHead(status).end(jwks)
    using watched = new Watched(server.url)
    await watched.untilTold()
    expect(watched.problems).toEqual([expect.stringContaining(`answers ${status}`)])
    expect(watched.inUse).toEqual([false])
    expect(watched.sets).toEqual([])
  })
})

test.each([301, 302, 307, 308])('a redirect (%i) is not followed', async (status) => {
  await using other = await KeySetServer.start((await makeIssuer()).jwks)
  server.answer = (response) => response.writeHead(status, { location: other.url }).end()
  using watched = new Watched(server.url)
  await watched.untilTold()
  expect(watched.problems).toEqual([expect.stringContaining('redirects are not followed')])
  expect(other.requests).toBe(0)
})

describe('a server that hangs', () => {
  test.each([
    ['before its answer', () => undefined],
    ['inside its answer', (response: import('node:http').ServerResponse) => response.write('{"keys":')],
  ])('%s gets a time limit', async (_, answer) => {
    server.answer = answer
    using watched = new Watched(server.url, { timeoutMs: 100 })
    await watched.untilTold()
    expect(watched.problems).toEqual(['did not answer in time'])
  })

  test('a cut answer is not a key set', async () => {
    server.answer = (response) => {
      response.writeHead(200, { 'content-length': String(jwks.length + 1) })
      response.write(jwks, () => response.destroy())
    }
    using watched = new Watched(server.url)
    await watched.untilTold()
    expect(watched.sets).toEqual([])
    expect(watched.problems).toHaveLength(1)
  })
})

test('a server with an untrusted certificate is refused', async () => {
  using watched = new Watched(server.url, { secureContext: undefined })
  await watched.untilTold()
  expect(watched.problems).toEqual([expect.stringContaining('does it need jwksCaFile?')])
  expect(server.requests).toBe(0)
})

test('a flood of unknown key ids causes few requests to the server', async () => {
  let now = 0
  using watched = new Watched(server.url, { minIntervalMs: 10_000, now: () => now })
  await watched.untilTold()
  await Promise.all(Array.from({ length: 50 }, () => watched.keySet.refresh()))
  expect(server.requests).toBe(1)
  now += 10_000
  await Promise.all(Array.from({ length: 50 }, () => watched.keySet.refresh()))
  expect(server.requests).toBe(2)
})

test('a withdrawn key is noticed without a request, because the set is fetched regularly', async () => {
  using watched = new Watched(server.url, { refreshMs: 10 })
  await watched.untilTold()
  const other = await makeIssuer('ES256', 'other')
  server.answer = (response) => response.end(other.jwks)
  await watched.changes.until(() => watched.sets.length === 2, 'the new set')
  expect(watched.sets[1]).toEqual(parseKeySet(other.jwks))
})

test('the token for the server is read for each request, and never logged', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'oap-'))
  try {
    const tokenFile = join(folder, 'token')
    await writeFile(tokenFile, 'first-token\n')
    using watched = new Watched(server.url, { tokenFile })
    await watched.untilTold()
    await writeFile(tokenFile, 'second-token\n')
    await watched.keySet.refresh()
    expect(server.authorizations).toEqual(['Bearer first-token', 'Bearer second-token'])
    await rm(tokenFile)
    await watched.keySet.refresh()
    expect(watched.problems).toEqual([expect.stringContaining('does not exist (ENOENT)')])
    await writeFile(tokenFile, 'third\u0001token')
    await watched.keySet.refresh()
    expect(watched.problems.join()).not.toContain('third')
  } finally {
    await rm(folder, { recursive: true })
  }
})
