/** The command `probe`: what it asks before it begins, what it refuses, and that nothing it prints holds a credential. */

import { expect, test } from 'vitest'
import { probe } from '../../../src/cli/probe.ts'
import { renderPage } from '../../../src/probe/report.ts'
import { startSandbox } from '../../../src/sandbox/sandbox.ts'
import { canariesOf } from '../../support/canaries.ts'
import { makeFolder } from '../../support/folder.ts'
import { startService } from '../../support/service.ts'
import { ProbeClock, runProbe } from './run-probe.ts'

const ENV = { OAP_BASE_URL: 'http://127.0.0.1:1', OAP_APP_ID: 'app', OAP_APP_SECRET: 'secret' }

function terminal(answer?: boolean) {
  const printed: string[] = []
  const print = (text: string) => printed.push(text)
  const confirm = answer === undefined ? undefined : async () => answer
  return { printed, print, tell: print, confirm, signal: new AbortController().signal }
}

test('it says what it sends, and asks; without a terminal, --yes must be given', async () => {
  await using sandbox = await startSandbox()
  const env = { ...ENV, OAP_BASE_URL: `${sandbox.baseUrl}/api/` }
  const refused = terminal(false)
  expect(await probe({ org: 'acme' }, env, refused)).toBe(1)
  expect(refused.printed.join('')).toContain(
    `at most 20 mints (POST ${sandbox.baseUrl}/api/v2/orgs/{orgId}/access) and 200 GETs (${sandbox.baseUrl}/api/v2/example/endpoint)`,
  )
  await expect(probe({ org: 'acme' }, env, terminal())).rejects.toThrow('there is no terminal to ask: give --yes')
  expect(sandbox.stats().totals).toMatchObject({ mints: 0, requests: 0, rejected: 0 })
})

test.each([
  [{ org: 'a/b' }, {}, '--org is not an org id'],
  [{ org: 'acme' }, { OAP_ORGS_ALLOW: 'globex' }, 'acme is not in orgs.allow'],
  [{ org: 'acme', path: '/v2/orgs/acme/ACCESS;x' }, {}, '--path is the token endpoint'],
  [
    { org: 'acme', path: '/v2/t/acme/new' },
    { OAP_TOKENS_ENDPOINT: 'PUT /v2/t/{orgId}/new' },
    '--path is the token endpoint',
  ],
  [{ org: 'acme', path: 'v2/../x' }, {}, '--path is no path that the proxy would forward'],
  [{ org: 'acme', wait: '30' }, {}, '--wait is not a duration: write 250ms, 30s, 5m or 1h'],
])('%j with %j is refused', async (command, env, message) => {
  await expect(probe({ ...command, yes: true }, { ...ENV, ...env }, terminal())).rejects.toThrow(message)
})

test('--yaml prints settings that a configuration takes', async () => {
  await using sandbox = await startSandbox({ tokenField: 'data.token', expiredStatus: 403 })
  const { baseUrl, appId, appSecret } = sandbox
  const env = { OAP_BASE_URL: baseUrl, OAP_APP_ID: appId, OAP_APP_SECRET: appSecret }
  const shown = { ...terminal(), tell: () => undefined }
  expect(await probe({ org: 'acme', yaml: true, yes: true }, env, shown, new ProbeClock())).toBe(0)
  expect(shown.printed).toEqual(['tokens:\n  field: data.token\n  rejectedStatuses: [401, 403]\n'])
  await using folder = await makeFolder()
  const file = await folder.write('probe.yaml', shown.printed.join(''))
  const again = { ...terminal(), tell: () => undefined }
  expect(await probe({ file, org: 'acme', yaml: true, yes: true }, env, again, new ProbeClock())).toBe(0)
  expect(again.printed).toEqual(shown.printed)
})

test('without a token, nobody can tell that the defaults fit', async () => {
  await using sandbox = await startSandbox()
  const { baseUrl, appId, appSecret } = sandbox
  const env = { OAP_BASE_URL: baseUrl, OAP_APP_ID: appId, OAP_APP_SECRET: appSecret }
  const shown = { ...terminal(), tell: () => undefined }
  expect(await probe({ org: 'initech', yaml: true, yes: true }, env, shown, new ProbeClock())).toBe(1)
  expect(shown.printed).toEqual(['# No setting follows: no member of the answer is known to be a token.\n{}\n'])
})

test('no credential is printed, wherever the service puts it', async () => {
  const echoes = (text: string) => [
    ...['Content-Type', text, 'Location', `https://${text}.example/${text}`, 'Allow', text, 'X-RateLimit-Limit', text],
    ...['RateLimit', `"${text}"`, 'WWW-Authenticate', `${text} error="${text}"`, 'Retry-After', text],
  ]
  for (const status of [200, 302, 401, 405, 429]) {
    let secret = ''
    await using service = await startService({
      appSecret: 'canary-secret-of-letters',
      acceptsAnyToken: true,
      script: (request) => {
        const credential = request.values('authorization').join().replace('Bearer ', '')
        return { status: credential.includes(secret) ? 200 : 401, fields: echoes(credential || 'none') }
      },
      mint: (mint) => {
        const { content = '' } = mint.issue()
        const { orgAccessToken } = JSON.parse(String(content))
        secret = orgAccessToken
        const key = Buffer.from(service.tokens.apiKey, 'base64').toString()
        const names = Object.fromEntries(
          [orgAccessToken, Buffer.from(orgAccessToken).toString('base64url'), service.tokens.appSecret, key].map(
            (name) => [name, Buffer.from(orgAccessToken).toString('hex')],
          ),
        )
        const fields = [
          ...echoes(orgAccessToken),
          ...echoes(service.tokens.appSecret),
          ...echoes(service.tokens.apiKey),
        ]
        return { status, fields, content: JSON.stringify({ orgAccessToken, ...names }) }
      },
    })
    const { output, report } = await runProbe(service)
    const canaries = canariesOf(service.tokens)
    expect(canaries.search(output)).toEqual([])
    expect(canaries.search(renderPage(report))).toEqual([])
  }
})
