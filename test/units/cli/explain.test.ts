import { describe, expect, test } from 'vitest'
import { explain } from '../../../src/cli/explain.ts'
import { makeFolder } from '../../support/folder.ts'
import { GOOD } from '../config/refusal.ts'

const FILE = `
baseUrl: https://api.example.com/prefix/
appRoutes: ["POST /v2/links"]
routes: { allow: ["* /v2/*"] }
orgs: { allow: [acme, globex] }
callers:
  - name: billing
    socket: /run/oap/billing.sock
    orgs: [acme]
    routes: ["GET /v2/invoices/*", "POST /v2/links"]
  - name: batch
    orgs: ["*"]
    jwt: { issuer: https://issuer.example, audience: a, subject: s, jwks: https://nowhere.invalid/jwks.json }
`

async function ask(
  operand: string,
  { org, caller, text = FILE }: { org?: string; caller?: string; text?: string } = {},
) {
  await using folder = await makeFolder()
  const file = await folder.write('proxy.yaml', text)
  const { OAP_BASE_URL: _, ...env } = GOOD
  let printed = ''
  const exitCode = await explain({ file, org, caller, operand }, env, (shown) => (printed += shown))
  const rows = printed.split('\n').map((line) => /^(\w+) +(.+)$/.exec(line) ?? [])
  return { exitCode, printed, ...Object.fromEntries(rows.flatMap(([, name, value]) => (name ? [[name, value]] : []))) }
}

test('an admitted request: the caller, the target at the service, and the credential', async () => {
  expect(await ask('GET /v2/invoices/7?x=1', { org: 'acme', caller: 'billing' })).toMatchObject({
    exitCode: 0,
    caller: 'billing',
    service: 'GET https://api.example.com/prefix/v2/invoices/7?x=1',
    with: 'the token of acme',
  })
  expect(await ask('POST /v2/links', { caller: 'billing' })).toMatchObject({
    exitCode: 0,
    with: 'the credentials of the App (appRoutes)',
  })
  // The key set is asked by nobody.
  expect(await ask('DELETE /v2/x', { org: 'globex', caller: 'batch' })).toMatchObject({ exitCode: 0, caller: 'batch' })
})

describe('a refused one: the step, the setting and the remedy', () => {
  test.each([
    ['GET /v2/invoices/7', { org: 'acme' }, '403 caller_refused', 'the caller', 'callers'],
    ['GET /v2/invoices/7', { org: 'globex', caller: 'billing' }, '403 org_not_allowed', 'the Org', 'callers[].orgs'],
    ['GET /v2/invoices/7', { org: 'other', caller: 'batch' }, '403 org_not_allowed', 'the Org', 'orgs.allow'],
    ['GET /v2/invoices/7', { caller: 'batch' }, '400 org_id_missing', 'the Org', undefined],
    ['GET /v2/invoices/7', { org: 'a b', caller: 'batch' }, '400 org_id_invalid', 'the Org', 'orgs.pattern'],
    ['GET /v2/things', { org: 'acme', caller: 'billing' }, '403 route_refused', 'the routes', 'callers[].routes'],
    ['GET /v3/things', { org: 'acme', caller: 'batch' }, '403 route_refused', 'the routes', 'routes.allow'],
    ['GET /v2/../x', { org: 'acme', caller: 'batch' }, '400 target_invalid', 'the path', undefined],
    ['get /v2/x', { org: 'acme', caller: 'batch' }, '400 request_invalid', 'the syntax of HTTP', undefined],
    ['GET /v2/ä', { org: 'acme', caller: 'batch' }, '400 request_invalid', 'the syntax of HTTP', undefined],
    ['GET /x', { org: 'a\r\nb: c', caller: 'batch' }, '400 request_invalid', 'the syntax of HTTP', undefined],
    [
      `GET /v2/${'x'.repeat(20_000)}`,
      { org: 'acme', caller: 'batch' },
      '431 request_head_too_large',
      'the syntax of HTTP',
      undefined,
    ],
    ['TRACE /v2/x', { org: 'acme', caller: 'batch' }, '405 method_refused', 'the method', undefined],
    [
      'PUT /v2/orgs/acme/access',
      { org: 'acme', caller: 'batch' },
      '403 token_endpoint_refused',
      'the token endpoint, which is closed',
      'routes.allowTokenEndpoint',
    ],
  ])('%s %j', async (operand, given, refused, step, setting) => {
    const found = await ask(operand, given)
    expect(found).toMatchObject({ exitCode: 1, refused, step, remedy: expect.stringMatching(/\.$/) })
    expect((found as { setting?: string }).setting).toBe(setting)
  })
})

test('a caller that no listener for apps takes requests from', async () => {
  const minter = `
baseUrl: https://api.example.com
minter: { address: "unix:/run/oap/minter.sock" }
callers: [{ name: sidecar, minterSocket: /run/oap/a.sock, orgs: ["*"], tokens: true }]
`
  const asked = { org: 'acme', caller: 'sidecar', text: minter }
  const refused = { exitCode: 1, refused: 'nobody takes the request', step: 'the listener' }
  expect(await ask('GET /v2/x', asked)).toMatchObject({ ...refused, setting: 'callers[].minterSocket' })
  const text = `${minter}listen: { address: "off" }`
  expect(await ask('GET /v2/x', { ...asked, text })).toMatchObject({ ...refused, setting: 'listen.address' })
})

test('a key that every request needs is taken to be sent', async () => {
  await using folder = await makeFolder()
  const key = await folder.write('key', 'a-key-of-twenty-letters')
  const text = `{ baseUrl: https://api.example.com, listen: { callerKeyFile: ${JSON.stringify(key)} } }`
  expect(await ask('GET /v2/x', { org: 'acme', text })).toMatchObject({
    exitCode: 0,
    caller: 'whoever sends the key of listen.callerKeyFile',
  })
})

test('what cannot be explained is refused', async () => {
  await expect(ask('GET', { org: 'acme' })).rejects.toThrow('write the request as "METHOD /path"')
  await expect(ask('GET /x', { caller: 'nobody' })).rejects.toThrow('there is no caller "nobody": billing, batch')
  expect((await ask('GET /v2/x', { org: 'a\u001bb', caller: 'batch' })).printed).not.toContain('\u001b')
})
