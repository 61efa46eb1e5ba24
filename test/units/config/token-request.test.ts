import { generateKeyPairSync } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { loadConfig } from '../../../src/config/load.ts'
import { CA_FILE, certificateFiles } from '../../support/certificates.ts'
import { GOOD, loadFile, loadWith, problemsOf, refusalOf, refusalWith, type Variables, withFile } from './refusal.ts'

const pem = (key: { export(options: object): string | Buffer }, options: object = {}) =>
  String(key.export({ format: 'pem', type: 'pkcs8', ...options }))
const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey
const p256 = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey

const tokens = (...lines: string[]) => `tokens:\n${lines.map((line) => `  ${line}\n`).join('')}`
const FORM = 'form: { organization: "{orgId}" }'
const ELSEWHERE = 'endpoint: "POST https://login.example.com/oauth/token"'

describe('a token request is refused', () => {
  test.each<[string, string]>([
    [tokens('endpoint: "POST /v2/oauth/token"'), 'names the Org nowhere'],
    [tokens(FORM), 'is not the only place of the Org'],
    [tokens(ELSEWHERE, 'form: { a: "{orgId}", b: "x-{orgId}" }'), 'is not the only place of the Org'],
    [tokens(ELSEWHERE, 'form: { "{orgId}": "{orgId}" }'), 'in a name'],
    [tokens(ELSEWHERE, FORM, 'json: { x: "y" }'), 'is set, and so is tokens.form'],
    [tokens('endpoint: "GET https://login.example.com/oauth/token"', FORM), 'is a GET, which has no content'],
    [tokens('endpoint: "GET /v2/orgs/{orgId}/token"', 'auth: form'), 'is a GET, which has no content'],
    [tokens(ELSEWHERE, 'auth: form', 'json: { a: "{orgId}" }'), 'is form, which needs a form'],
    [tokens(ELSEWHERE, 'auth: form', 'form: { a: "{orgId}", client_id: x }'), 'has client_id'],
    [tokens(ELSEWHERE, 'form: { a: "{orgId}", client_secret: x }'), 'secrets do not stand in settings'],
    [tokens(ELSEWHERE, 'json: { a: "{orgId}", password: x }'), 'secrets do not stand in settings'],
    [tokens('endpoint: "POST http://login.example.com/{orgId}/token"'), 'is plain http to another machine'],
    [tokens('endpoint: "POST /token"', FORM), 'has one segment, which would close every path'],
    [tokens('endpoint: "POST /v2/token"', FORM), 'has one segment, which would close every path'],
    [tokens('endpoint: "POST https://api.example.com/v1.2/token"', FORM), 'has one segment'],
    [
      tokens(ELSEWHERE, FORM, 'auth: form').concat('appRoutes: ["POST /v2/links"]\n'),
      'is set, but tokens.auth is form',
    ],
    [tokens(ELSEWHERE, 'form: text'), 'is not a mapping of names and text'],
    [tokens(ELSEWHERE, 'form: { a: [b] }'), 'has a value that is not text'],
    [tokens(ELSEWHERE, 'json: { a: "{orgId}", ttl: 300 }'), 'write a number, true or false in quotes'],
    [tokens(ELSEWHERE, 'json: { a: "{orgId}", all: true }'), 'write a number, true or false in quotes'],
  ])('%s', async (content, problem) => {
    expect(await problemsOf(content)).toEqual([expect.stringContaining(problem)])
  })

  test('a number of tokens.json behind an alias', async () => {
    const content = tokens(ELSEWHERE, 'form: &body { a: "{orgId}", ttl: 300 }', 'json: *body')
    expect(await problemsOf(content)).toContainEqual(expect.stringContaining('write a number, true or false in quotes'))
  })

  test.each(['json: { a: "{orgId}", ttl: "300" }', 'form: { a: "{orgId}", ttl: 300 }'])(
    'but not %s',
    async (content) => {
      const { config } = await loadFile(tokens(ELSEWHERE, content))
      expect({ ...config.tokens.form, ...config.tokens.json }).toEqual({ a: '{orgId}', ttl: '300' })
    },
  )

  test('with every problem at once', async () => {
    const content = tokens(
      'endpoint: "GET http://login.example.com/oauth/token"',
      'auth: assertion',
      'json: { refresh_token: a }',
    )
    expect((await problemsOf(content)).map((line) => line.slice(line.indexOf('): ') + 3).slice(0, 24))).toEqual([
      'has refresh_token, and s',
      'is assertion, which need',
      'is a GET, which has no c',
      'names the Org nowhere: p',
      'is plain http to another',
      'is no private key that c',
    ])
  })

  test.each([
    'POST https://{orgId}.example.com/oauth/token',
    'POST https://login.example.com/oauth/token?org={orgId}',
    'POST https://user:password@login.example.com/{orgId}/token',
    'POST https://login.example.com/{orgId}/token#part',
    'POST https://login.example.com/{orgId}',
    'POST https://login.example.com/../{orgId}/token',
    'POST ftp://login.example.com/{orgId}/token',
    'post https://login.example.com/{orgId}/token',
    'POST https://login.example.com:x/{orgId}/token',
  ])('%s', async (endpoint) => {
    const [line, ...more] = await refusalWith({ OAP_TOKENS_ENDPOINT: endpoint })
    expect([line?.startsWith('tokens.endpoint (OAP_TOKENS_ENDPOINT): '), more]).toEqual([true, []])
    expect(line).not.toContain('password@')
  })

  test('the content stands in a file only', async () => {
    expect(await refusalWith({ OAP_TOKENS_FORM: '{a: b}' })).toEqual([
      expect.stringContaining('tokens.form (OAP_TOKENS_FORM): is not a mapping of names and text'),
    ])
  })
})

describe('names of Orgs are refused', () => {
  test.each<[string, string]>([
    ['orgs: { ids: {} }', 'is empty, so no Org would be accepted'],
    ['orgs: { ids: { "a b": "1" } }', 'has "a b", which is not an org id (see orgs.pattern)'],
    ['orgs: { ids: { a: "x/y" } }', 'has "a", which has an id with a character that no org id has'],
    ['orgs: { ids: { a: ".." } }', 'has "a", which has an id with a character'],
    ['orgs: { ids: { a: "1", b: "2", c: "1" } }', 'has "c", which has the id of a: give each Org one name'],
    ['orgs: { ids: { a: [b] } }', 'is not text'],
    ['orgs: { ids: [a, b] }', 'is not a mapping of names and ids of Orgs'],
    ['orgs: { ids: { a: "1" } }\ntokens: { warm: ["1"] }', 'has "1", which is not in orgs.ids'],
    ['orgs: { ids: { a: "1" }, allow: [b] }', 'has "b", which is not in orgs.ids'],
  ])('%s', async (content, problem) => {
    expect(await problemsOf(content)).toEqual([expect.stringContaining(problem)])
  })

  test('the ids need not match orgs.pattern', async () => {
    const { config } = await loadFile('orgs: { pattern: "[a-z]+", ids: { acme: "{47-11}", globex: 4712 } }')
    expect([...(config.orgs.ids ?? [])]).toEqual([
      ['acme', '{47-11}'],
      ['globex', '4712'],
    ])
  })

  test('at a sidecar', async () => {
    const { OAP_APP_ID: _, OAP_APP_SECRET: __, ...env } = GOOD
    const sidecar = { ...env, OAP_MINTER_URL: 'unix:/run/minter.sock' }
    expect(await problemsOf('orgs: { ids: { a: "1" } }', {}, sidecar)).toEqual([
      expect.stringContaining('orgs.ids (1:14): is set, and so is minter.url: the minter needs it, not its sidecars'),
    ])
  })
})

const HEADERS = 'secretHeaders: { X-Key: a.key }'

describe('an assertion that somebody else signs', () => {
  const { OAP_APP_SECRET: _, ...env } = GOOD
  const JWT = 'aaa.bbb.ccc'
  const file = (...lines: string[]) => tokens(ELSEWHERE, 'form: { a: "{orgId}" }', 'assertionFile: a.jwt', ...lines)

  test('no secret is needed, and one that has ended is a warning', async () => {
    const ended = `aaa.${Buffer.from('{"exp":1}').toString('base64url')}.ccc`
    for (const jwt of [JWT, ended]) {
      const { config, warnings } = await loadFile(file('auth: assertion'), { 'a.jwt': `${jwt}\n` }, env)
      expect(config.app?.appSecret.reveal()).toBe(jwt)
      expect(warnings.filter((line) => line.includes('has ended'))).toHaveLength(jwt === ended ? 1 : 0)
    }
  })

  test.each<[string, string, Variables, string]>([
    ['another auth', file('auth: form'), env, 'needs tokens.auth: assertion, which is form'],
    [
      'a secret',
      file('auth: assertion'),
      { ...env, OAP_APP_SECRET: pem(rsa) },
      'is set, and so is appSecret: keep one',
    ],
    [
      'a fleet',
      file('auth: assertion'),
      { ...env, OAP_FLEET_STORE: 'redis://localhost' },
      'needs an App secret to seal',
    ],
    [
      'a sidecar',
      file('auth: assertion'),
      { OAP_BASE_URL: GOOD.OAP_BASE_URL, OAP_MINTER_URL: 'unix:/m' },
      'and so is minter.url',
    ],
    ['claims of ours', file('auth: assertion', 'assertion: { keyId: a }'), env, 'is of a JWT that is signed here'],
  ])('is refused beside %s', async (__, content, variables, problem) => {
    expect(await problemsOf(content, { 'a.jwt': JWT }, variables)).toEqual([expect.stringContaining(problem)])
  })

  test('is refused if it is none', async () => {
    expect(await problemsOf(file('auth: assertion'), { 'a.jwt': pem(rsa) }, env)).toEqual([
      expect.stringContaining('has a second line'),
    ])
    expect(await problemsOf(file('auth: assertion'), { 'a.jwt': 'password' }, env)).toEqual([
      expect.stringContaining('holds no signed JWT'),
    ])
  })
})

describe('fields with secrets are refused', () => {
  test.each<[string, string]>([
    ['origin: { secretHeaders: { Authorization: a.key } }', 'names a field that the proxy reads, sets or removes'],
    ['origin: { secretHeaders: { X-Org-Id: a.key } }', 'names a field that the proxy reads'],
    ['origin: { secretHeaders: { Transfer_Encoding: a.key } }', 'names a field that the proxy reads'],
    [`tokens: { header: "X_Key: {token}", ${HEADERS} }`, 'is the field of tokens.header: each needs one of its own'],
    ['origin: { secretHeaders: { X-Key: a.key, x_key: a.key } }', 'is the field of X-Key: each needs'],
    ['origin: { secretHeaders: { "X Key": a.key } }', 'has a name that is no field name'],
    ['origin: { secretHeaders: { X-Key: s3cret-itself } }', 'does not exist (ENOENT); paths here begin in'],
    ['origin: { secretHeaders: { X-Key: two.key } }', 'has a second line'],
    ['origin: { secretHeaders: { X-Key: blank.key } }', 'begins or ends with a blank'],
    ['origin: { secretHeaders: { X-Key: umlaut.key } }', 'has a character that is not visible ASCII'],
    ['origin: { secretHeaders: { X-Key: [a.key] } }', 'is not text'],
    ['origin: { secretHeaders: { X-Key: } }', 'has no value'],
    ['origin: { secretHeaders: s3cret-itself }', 'is not a mapping of field names and files'],
  ])('%s', async (content, problem) => {
    const files = { 'a.key': 'a', 'two.key': 'a\nb', 'blank.key': 'a ', 'umlaut.key': 'ä' }
    const lines = await problemsOf(content, files)
    expect(lines).toEqual([expect.stringContaining(problem)])
    expect(lines[0]).not.toContain('s3cret')
  })

  test('those of the token call at a sidecar', async () => {
    const { OAP_APP_ID: _, OAP_APP_SECRET: __, ...env } = GOOD
    const sidecar = { ...env, OAP_MINTER_URL: 'unix:/run/minter.sock' }
    const files = { 'a.key': 'a' }
    expect(await problemsOf(`tokens: { ${HEADERS} }`, files, sidecar)).toEqual([
      expect.stringContaining('tokens.secretHeaders (1:26): is set, and so is minter.url'),
    ])
    await expect(loadFile(`origin: { ${HEADERS} }`, files, sidecar)).resolves.toBeDefined()
  })
})

describe('the secret fits tokens.auth', () => {
  const encrypted = pem(rsa, { cipher: 'aes-256-cbc', passphrase: 'x' })
  test.each<[string, string, string]>([
    ['jwt', 'a password', 'is no private key'],
    ['jwt', encrypted, 'not encrypted'],
    ['jwt', pem(generateKeyPairSync('rsa', { modulusLength: 1024 }).privateKey), '2048 bits or more'],
    ['jwt', pem(generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey), 'P-256'],
    ['jwt', pem(rsa).slice(0, 300), 'may be only half written'],
    ['jwt', pem(rsa) + pem(p256), 'more than one'],
    ['basic', pem(rsa), 'holds a private key, but tokens.auth is basic'],
  ])('%s: refused', async (auth, secret, problem) => {
    const lines = await refusalWith({ OAP_APP_SECRET: secret, OAP_TOKENS_AUTH: auth })
    expect(lines).toEqual([expect.stringContaining(problem)])
    expect(lines.join()).not.toContain('MII')
  })

  test.each<[string, string]>([
    ['PKCS#8', pem(rsa)],
    ['PKCS#1', pem(rsa, { type: 'pkcs1' })],
    [
      'SEC1 behind its parameters',
      `-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n${pem(p256, { type: 'sec1' })}`,
    ],
    ['Ed25519', pem(generateKeyPairSync('ed25519').privateKey)],
    ['lines with CR', pem(rsa).replaceAll('\n', '\r\n')],
  ])('%s', async (_, secret) => {
    const { OAP_APP_SECRET: __, ...env } = GOOD
    const content = `appSecretFile: app.pem\n${tokens('auth: jwt')}`
    await withFile(
      content,
      async (file) => {
        const { config, given } = await loadConfig({ file, env })
        expect(config.app?.appSecret.reveal()).toMatch(/^-----BEGIN [A-Z ]*PRIVATE KEY-----\n[^\r]+\n$/)
        expect(given.get('appSecretFile')?.text).toBe('app.pem')
      },
      { 'app.pem': secret },
    )
  })

  const { certificate, key } = certificateFiles('localhost')
  const [cert, ownKey] = [readFileSync(certificate, 'utf8'), readFileSync(key, 'utf8')]
  const CA = readFileSync(CA_FILE, 'utf8')

  test('with its certificate, wherever that stands', async () => {
    for (const secret of [cert + ownKey, ownKey + CA + cert]) {
      const { config } = await loadWith({ OAP_APP_SECRET: secret, OAP_TOKENS_AUTH: 'jwt' })
      expect(config.app?.appSecret.reveal()).toBe(`${ownKey.trim()}\n${cert.trim()}\n`)
    }
  })

  test.each<[string, string, Variables, string]>([
    ['the certificate of another key', pem(rsa) + cert, {}, 'has a certificate that is not the one of its private key'],
    ['an algorithm of another key', pem(p256), { OAP_TOKENS_ASSERTION_ALGORITHM: 'PS256' }, 'but with ES256'],
    ['an algorithm of RSA', pem(rsa), { OAP_TOKENS_ASSERTION_ALGORITHM: 'ES256' }, 'but with RS256 or PS256'],
    [
      'an unknown algorithm',
      pem(rsa),
      { OAP_TOKENS_ASSERTION_ALGORITHM: 'HS256' },
      'is not one of RS256, PS256, ES256',
    ],
    ['no JWT', 'a password', { OAP_TOKENS_AUTH: 'basic', OAP_TOKENS_ASSERTION_KEY_ID: 'a' }, 'needs tokens.auth: jwt'],
  ])('refused: %s', async (_, secret, env, problem) => {
    expect(await refusalWith({ OAP_APP_SECRET: secret, OAP_TOKENS_AUTH: 'jwt', ...env })).toEqual([
      expect.stringContaining(problem),
    ])
  })

  test('a key file that is none', async () => {
    const { OAP_APP_SECRET: _, ...env } = GOOD
    await withFile(
      `appSecretFile: app.pem\n${tokens('auth: jwt')}`,
      async (file) => {
        expect(await refusalOf({ file, env })).toEqual([expect.stringContaining('appSecretFile')])
      },
      { 'app.pem': '-----BEGIN PRIVATE KEY-----\nTUlJ\n-----END PRIVATE KEY-----\n' },
    )
  })
})
