/**
 * Attacks on the key set of a caller's issuer. An attacker with the keys can be any caller of that issuer. A server of key
 * sets that hangs or answers falsely must not lock out callers with good tokens.
 */

import dns from 'node:dns'
import { readFileSync } from 'node:fs'
import { rm, writeFile } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import { gzipSync } from 'node:zlib'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { keySetDownload } from '../../src/app/pools.ts'
import { type CallerRule, Callers } from '../../src/callers/callers.ts'
import { KeySets, type KeySetTiming } from '../../src/callers/key-sets.ts'
import { readVersion } from '../../src/version.ts'
import { CA_FILE } from '../support/certificates.ts'
import { Changes } from '../support/changes.ts'
import { collectGarbage } from '../support/collect-garbage.ts'
import { openDeadEnd } from '../support/dead-end.ts'
import { makeFolder } from '../support/folder.ts'
import { CLAIMS, type Issuer, makeIssuer, sign } from '../units/callers/issuer.ts'
import { KeySetServer } from '../units/callers/key-set-server.ts'
import { outcomeOf, rule } from '../units/callers/make-callers.ts'

const CA = readFileSync(CA_FILE, 'utf8')
/** Each unknown key is fetched, and nothing else. */
const ON_DEMAND = { refreshMs: 1_000_000, minIntervalMs: 0, retryMs: 0, timeoutMs: 5_000 }

interface Source {
  readonly caCertificates?: string | undefined
  readonly tokenFile?: string
}

/** A caller whose key set is behind the server, and what its proxy observes. */
class Batch implements Disposable {
  readonly told: string[] = []
  readonly changes = new Changes()
  readonly #url: string
  readonly #keySets: KeySets
  #callers: Callers

  constructor({ url }: Pick<KeySetServer, 'url'>, source: Source = {}, timing: Partial<KeySetTiming> = {}) {
    this.#url = url
    const tell = (text: string) => {
      this.told.push(text)
      this.changes.notify()
    }
    this.#keySets = new KeySets(
      {
        keySetUnavailable: (_, text) => tell(text),
        keySetRecovered: () => tell('recovered'),
        keySetChanged: () => {
          this.#callers.forgetTokens()
          tell('changed')
        },
      },
      keySetDownload(),
      { ...ON_DEMAND, ...timing },
    )
    this.#callers = this.use(source)
  }

  use({ caCertificates, tokenFile }: Source): Callers {
    const jwksCaFile = caCertificates === undefined ? undefined : { content: caCertificates }
    const source = { jwks: this.#url, jwksCaFile, jwksTokenFile: tokenFile }
    const jwt = { issuer: CLAIMS.iss, audience: CLAIMS.aud, subject: CLAIMS.sub, ...source }
    const rules: CallerRule[] = [rule('batch', { jwt })]
    this.#keySets.use(rules)
    this.#callers = new Callers(rules, (token, credential) => this.#keySets.verify(token, credential))
    return this.#callers
  }

  /** The name of the caller of a token, or why it has none. */
  async outcomeOf(token: string): Promise<string> {
    const outcome = await outcomeOf(this.#callers, token)
    return typeof outcome === 'string' ? outcome : outcome.name
  }

  close(): void {
    this.#keySets.close()
  }

  [Symbol.dispose](): void {
    this.close()
  }
}

let server: KeySetServer
let issuer: Issuer
let good: string
/** A token that names an unknown key, so that the set is fetched. */
let unknown: string

beforeEach(async () => {
  issuer = await makeIssuer()
  server = await KeySetServer.start(issuer.jwks)
  good = await sign(issuer)
  unknown = await sign(issuer, { header: { kid: 'unknown' } })
})

afterEach(async () => {
  await server[Symbol.asyncDispose]()
})

const trusting = (timing: Partial<KeySetTiming> = {}) => new Batch(server, { caCertificates: CA }, timing)

const answerWith = (body: string | Buffer, status = 200, headers = {}) => {
  server.answer = (response) => response.writeHead(status, headers).end(body)
}

const halfAnAnswer = (end: (response: ServerResponse) => void) => (response: ServerResponse) => {
  response.writeHead(200, { 'content-length': String(issuer.jwks.length + 1) })
  response.write(issuer.jwks, () => end(response))
}

const BAD_SETS: readonly (readonly [string, () => void, string])[] = [
  ['HTML', () => answerWith('<html>'), 'is not JSON'],
  ['nothing', () => answerWith(''), 'is not JSON'],
  ['null', () => answerWith('null'), 'is not a JSON Web Key Set'],
  ['a list', () => answerWith('[]'), 'is not a JSON Web Key Set'],
  ['only a secret', () => answerWith('{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}'), 'has no public key for'],
  ['half a key', () => answerWith('{"keys":[{"kty":"EC","crv":"P-256","x":"AA"}]}'), 'has no public key for'],
  ['many keys', () => answerWith(JSON.stringify({ keys: Array(101).fill({ kty: 'RSA' }) })), 'more than 100 keys'],
  ['a compressed set without end', () => answerWith(gzipSync(' '.repeat(70_000))), 'ERR_BUFFER_TOO_LARGE'],
  ['a set without end', () => answerWith(' '.repeat(70_000)), 'cannot be fetched (http_protocol_error)'],
  ...[404, 500, 204, 401].map((status) => [`${status}`, () => answerWith('', status), `answers ${status}`] as const),
  [
    'a cut answer',
    () => Object.assign(server, { answer: halfAnAnswer((response) => response.destroy()) }),
    'http_response_incomplete',
  ],
  // A combined signal of Node 20 forgets its time limit with the garbage.
  ['no answer', () => Object.assign(server, { answer: () => collectGarbage() }), 'did not answer in time'],
  ['half an answer', () => Object.assign(server, { answer: halfAnAnswer(() => undefined) }), 'did not answer in time'],
]

test.each(BAD_SETS)('a server that answers falsely: %s. The last good set stays', async (_, answer, problem) => {
  using batch = trusting({ timeoutMs: 500 })
  expect(await batch.outcomeOf(good)).toBe('batch')
  answer()
  for (let i = 0; i < 2; i++) expect(await batch.outcomeOf(unknown)).toBe('unknown key id') // its problem is told once
  expect(batch.told).toEqual([expect.stringContaining(problem)])
  expect(await batch.outcomeOf(await sign(issuer, { claims: { jti: 'next' } }))).toBe('batch')
  answerWith(issuer.jwks)
  await batch.changes.until(() => batch.told.length > 1, 'the recovery')
  expect(batch.told.slice(1)).toEqual(['recovered'])
})

test.each([301, 307])('a redirect (%i) is not followed', async (status) => {
  const attacker = await makeIssuer()
  await using other = await KeySetServer.start(attacker.jwks)
  answerWith('', status, { location: other.url })
  using batch = trusting()
  expect(await batch.outcomeOf(await sign(attacker))).toBe('no key set')
  expect(batch.told[0]).toBe(`answers ${status}`)
  expect(other.requests).toBe(0)
})

// With NODE_TLS_REJECT_UNAUTHORIZED=0 in the environment, whoever stands between could name the keys and be every caller.
test.each(['1', '0'])('an untrusted certificate is refused, with NODE_TLS_REJECT_UNAUTHORIZED=%s', async (value) => {
  vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', value)
  try {
    using batch = new Batch(server)
    expect(await batch.outcomeOf(good)).toBe('no key set')
    expect(batch.told[0]).toMatch(/^cannot be fetched \([A-Z_]+\)$/)
    expect(server.requests).toBe(0)
  } finally {
    vi.unstubAllEnvs()
  }
})

test.each([
  ['with a byte order mark', (jwks: string) => `\uFEFF${jwks}`],
  ['compressed, although nothing asked for it', gzipSync],
])('a set %s is read', async (_, written) => {
  server.answer = (response) => response.end(written(issuer.jwks))
  using batch = trusting()
  expect(await batch.outcomeOf(good)).toBe('batch')
})

test('the request says who asks, and for what', async () => {
  using batch = trusting()
  await batch.outcomeOf(good)
  expect(server.fields).toMatchObject([
    { 'user-agent': `org-access-proxy/${readVersion()}`, accept: 'application/jwk-set+json, application/json' },
  ])
})

test.skipIf(process.platform !== 'linux')(
  'a far server is reached, although another address of its name leads nowhere',
  async () => {
    await using far = await openDeadEnd('127.0.0.2', 0, server.port)
    const addresses = ['127.0.0.2', '127.0.0.3'].map((address) => ({ address, family: 4 }))
    const lookup = vi.spyOn(dns, 'lookup').mockImplementation(((_: string, __: object, done: Done) => {
      setTimeout(() => far.wake(), 400)
      done(null, addresses)
    }) as typeof dns.lookup)
    using batch = new Batch({ url: `https://localhost:${far.port}/` }, { caCertificates: CA })
    expect(await batch.outcomeOf(good)).toBe('batch')
    lookup.mockRestore()
  },
)

type Done = (error: null, addresses: readonly { readonly address: string; readonly family: number }[]) => void

test('a server that was down is asked again without a request, however fast it fails', async () => {
  answerWith('', 500)
  using batch = trusting({ minIntervalMs: 100, retryMs: 100 })
  await server.changes.until(() => server.requests > 10, 'one try after the other')
  answerWith(issuer.jwks)
  await batch.changes.until(() => batch.told.includes('recovered'), 'the set')
})

test('a well-formed set without keys revokes all', async () => {
  using batch = trusting()
  expect(await batch.outcomeOf(good)).toBe('batch')
  answerWith('{"keys":[]}')
  await batch.outcomeOf(unknown)
  expect(batch.told).toEqual(['changed'])
  expect(await batch.outcomeOf(good)).toBe('unknown key id')
})

test('a withdrawn key is noticed without a request, because the set is fetched regularly', async () => {
  using batch = trusting({ refreshMs: 10 })
  expect(await batch.outcomeOf(good)).toBe('batch')
  answerWith((await makeIssuer('ES256', 'other')).jwks)
  await batch.changes.until(() => batch.told.includes('changed'), 'the new set')
  expect(await batch.outcomeOf(good)).toBe('unknown key id')
})

test('a closed key set stops fetching', async () => {
  const batch = trusting({ refreshMs: 1 })
  await server.changes.until(() => server.requests > 2, 'regular fetches')
  batch.close()
  const before = server.requests
  await batch.outcomeOf(unknown)
  await new Promise((resolve) => setTimeout(resolve, 100))
  expect(server.requests).toBe(before)
})

test('a changed jwksCaFile keeps the last good set until the next is fetched, and its server is asked no more', async () => {
  using batch = trusting({ refreshMs: 50 })
  expect(await batch.outcomeOf(good)).toBe('batch')
  server.answer = () => undefined // the server hangs from now on
  batch.use({ caCertificates: `${CA}\n` })
  expect(await batch.outcomeOf(good)).toBe('batch')
})

describe('a flood of unknown keys', () => {
  test.each([
    ['reaches the server once in an interval', 60_000, 1],
    ['reaches it again after the interval', 500, 2],
  ])('%s', async (_, minIntervalMs, requests) => {
    using batch = trusting({ minIntervalMs })
    const flood = () => Promise.all(Array.from({ length: 50 }, (_, n) => batch.outcomeOf(`${unknown}${n}`)))
    expect(new Set(await flood())).toEqual(new Set(['unknown key id']))
    await new Promise((resolve) => setTimeout(resolve, 600))
    await flood()
    expect(server.requests).toBe(requests)
  })
})

test('the token for the server is read for each request, and never told', async () => {
  await using folder = await makeFolder()
  const tokenFile = await folder.write('token', 'first-token\n')
  using batch = new Batch(server, { caCertificates: CA, tokenFile })
  expect(await batch.outcomeOf(good)).toBe('batch')
  await writeFile(tokenFile, 'second-token\n')
  await batch.outcomeOf(unknown)
  expect(server.fields.map(({ authorization }) => authorization)).toEqual(['Bearer first-token', 'Bearer second-token'])
  await rm(tokenFile)
  await batch.outcomeOf(unknown)
  expect(batch.told).toEqual([expect.stringContaining('does not exist (ENOENT)')])
  await writeFile(tokenFile, 'third\u0001token')
  await batch.outcomeOf(unknown)
  expect(batch.told.join()).not.toContain('third')
})
