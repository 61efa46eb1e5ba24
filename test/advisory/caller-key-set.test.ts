/**
 * Attacks on the key set of a caller's issuer. An attacker with the keys can be any caller of that issuer. A server of key
 * sets that hangs or answers falsely must not lock out callers with good tokens.
 */

import { readFileSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { type CallerRule, Callers } from '../../src/callers/callers.ts'
import { type KeySet, parseKeySet } from '../../src/callers/jwt.ts'
import { KeySets, RemoteKeySet, type RemoteKeySetOptions } from '../../src/callers/key-sets.ts'
import { contextTrusting } from '../../src/trusted-certificates.ts'
import { CLAIMS, type Issuer, makeIssuer, sign } from '../callers/issuer.ts'
import { KeySetServer } from '../callers/key-set-server.ts'
import { NO_OBSERVER, outcomeOf, rule } from '../callers/make-callers.ts'
import { CA_FILE } from '../support/certificates.ts'
import { Changes } from '../support/changes.ts'

const secureContext = contextTrusting(readFileSync(CA_FILE, 'utf8'))

class Watched implements Disposable {
  readonly sets: KeySet[] = []
  readonly problems: string[] = []
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
      onProblem: (text) => {
        this.problems.push(text)
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
let issuer: Issuer
let jwks: string

beforeEach(async () => {
  issuer = await makeIssuer()
  jwks = issuer.jwks
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

test('a well-formed set without keys revokes all', async () => {
  using watched = new Watched(server.url)
  await watched.untilTold()
  server.answer = (response) => response.end('{"keys":[]}')
  await watched.keySet.refresh()
  expect([watched.problems, watched.sets.at(-1)]).toEqual([[], { keys: [] }])
})

// With NODE_TLS_REJECT_UNAUTHORIZED=0 in the environment, whoever stands between could name the keys and be every caller.
test('certificates are verified whatever the environment says', async () => {
  vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0')
  try {
    using watched = new Watched(server.url, { secureContext: undefined })
    await watched.untilTold()
    expect(watched.problems).toEqual([expect.stringContaining('does it need jwksCaFile?')])
  } finally {
    vi.unstubAllEnvs()
  }
})

test('a closed key set stops fetching', async () => {
  const watched = new Watched(server.url, { refreshMs: 1 })
  await server.changes.until(() => server.requests > 2, 'regular fetches')
  watched.keySet.close()
  const before = server.requests
  await watched.keySet.refresh()
  await new Promise((resolve) => setTimeout(resolve, 100))
  expect(server.requests).toBe(before)
})

describe('the callers of a proxy', () => {
  async function withKeySets(act: (keySets: KeySets, ruleWith: (ca?: string) => CallerRule) => Promise<void>) {
    const keySets = new KeySets(NO_OBSERVER)
    const ca = readFileSync(CA_FILE, 'utf8')
    const ruleWith = (caCertificates = ca): CallerRule =>
      rule('batch', {
        kind: 'jwt',
        issuer: CLAIMS.iss,
        audience: CLAIMS.aud,
        subject: CLAIMS.sub,
        keySet: { kind: 'url', url: server.url, caCertificates, tokenFile: undefined },
      })
    keySets.use([ruleWith()])
    try {
      await act(keySets, ruleWith)
    } finally {
      keySets.close()
    }
  }

  test('tokens with unknown key ids reach the server once in ten seconds', async () => {
    await withKeySets(async (keySets, ruleWith) => {
      const callers = new Callers([ruleWith()], { verify: (token, credential) => keySets.verify(token, credential) })
      for (const kid of ['a', 'b', 'c', undefined]) {
        expect(await outcomeOf(callers, await sign(issuer, { header: { kid: kid ?? 'd' } }))).toBe('unknown key id')
      }
      expect(server.requests).toBe(1)
    })
  })

  test('a changed jwksCaFile keeps the last good set until the next is fetched', async () => {
    await withKeySets(async (keySets, ruleWith) => {
      const token = await sign(issuer)
      const outcomeWith = async (of: CallerRule) =>
        outcomeOf(new Callers([of], { verify: (each, credential) => keySets.verify(each, credential) }), token)
      expect(await outcomeWith(ruleWith())).toMatchObject({ name: 'batch' })
      server.answer = () => undefined // the server hangs from now on
      const changed = ruleWith(`${readFileSync(CA_FILE, 'utf8')}\n`)
      keySets.use([changed])
      expect(await outcomeWith(changed)).toMatchObject({ name: 'batch' })
    })
  })

  // While the server hangs, made-up tokens must not pile up.
  test('beyond 256 tokens that wait for a newer set, the next is refused at once', async () => {
    server.answer = () => undefined
    await withKeySets(async (keySets, ruleWith) => {
      const callers = new Callers([ruleWith()], { verify: (token, credential) => keySets.verify(token, credential) })
      const token = await sign(issuer)
      const waiting = Array.from({ length: 256 }, (_, index) => callers.verify(`${token}${index}`))
      await new Promise(setImmediate)
      // The others wait for five seconds.
      const later = new Promise((resolve) => setTimeout(resolve, 1_000, 'waits like the others').unref())
      expect(await Promise.race([later, callers.verify(token)])).toBe('no key set')
      keySets.close()
      await Promise.all(waiting)
    })
  })
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
