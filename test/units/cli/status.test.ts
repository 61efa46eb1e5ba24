import { expect, test } from 'vitest'
import { printStatus } from '../../../src/cli/status.ts'
import { AdminUnderTest } from '../admin/start-admin.ts'

async function run(port: number, asJson = false) {
  let printed = ''
  const exitCode = await printStatus({ kind: 'tcp', host: 'localhost', port }, asJson, (text) => (printed += text))
  return { exitCode, printed }
}

test('shows the App, the errors and the Orgs of a ready proxy', async () => {
  await using admin = await AdminUnderTest.start()
  admin.unanswered = [100, 45_000, 2_000].map((silentMs) => ({ org: 'globex', route: `GET /v2/${silentMs}`, silentMs }))
  await admin.mint('acme')
  await admin.mint('stranger').catch(() => {})
  admin.requestEnded({ startedAt: performance.now() - 151.3412 })
  admin.requestEnded({ status: 403, code: 'org_access_refused', orgId: 'initech', path: '/v2/members' })
  const { exitCode, printed } = await run(admin.port)
  expect(exitCode).toBe(0)
  expect(printed).toMatch(/^ready {2}org-access-proxy 0\.0\.0-test on Node /)
  for (const line of [
    'App my-app at https://api.example.com/',
    '  requests  2 (2 in flight: 1 wait for a token, 0 for a connection, 1 are with the service)',
    '  errors    0 from the proxy, 0 from the service, 1 of the apps',
    '  busiest Orgs                    acme 1, initech 1',
    '  Orgs with most errors           initech 1',
    '  Orgs with most in flight        acme 2, globex 1 (GET /v2/45000 unanswered for 45 s)',
    '  Orgs with most WebSockets       initech 1',
  ]) {
    expect(printed.split('\n')).toContain(line)
  }
  expect(printed).toMatch(/^ {2}app {5}403 org_access_refused {2}1 time, .*: Org access refused$/m)
  expect(printed).toMatch(/^ {6}last: GET \/v2\/members for initech, .*, request request-1$/m)
  expect(printed).toMatch(/^ {2}latency {3}p50 [\d.,]{1,4} m?s, p99 [\d.,]{1,4} m?s$/m)
  expect(printed).toMatch(/^ {2}stranger {2}refused {5}refused with 403$/m)
  expect(printed).toMatch(/^ {2}acme {6}young {7}token \d s old, lives about 5 min$/m)
})

test('the answers of the service are counted by class; those of the proxy are not', async () => {
  await using admin = await AdminUnderTest.start()
  for (const status of [200, 101, 302, 302, 302, 404, 500]) admin.requestEnded({ status })
  admin.requestEnded({ status: 502, code: 'dns_error', respondedAt: undefined })
  admin.requestEnded({ status: 400, code: 'org_id_missing', respondedAt: undefined })
  const { printed } = await run(admin.port)
  expect(printed).toContain('\n  answers   of the service: 2xx 2, 3xx 3, 4xx 1, 5xx 1\n')
})

test('warnings stand in the first line, too', async () => {
  await using admin = await AdminUnderTest.start()
  admin.paused = { text: 'No Org gets a new token.', leftMs: 60_000 }
  const { exitCode, printed } = await run(admin.port)
  expect(exitCode).toBe(0)
  expect(printed).toMatch(/^ready, 1 warning {2}org-access-proxy /)
})

test('a request that could not be read is told as such', async () => {
  await using admin = await AdminUnderTest.start()
  admin.requestEnded({ status: 400, code: 'request_invalid', method: '', path: '', orgId: undefined })
  const { printed } = await run(admin.port)
  expect(printed).toMatch(/^ {6}last: no readable request, just now, request request-1$/m)
})

test('a proxy that is not ready says why, and the exit code is 1', async () => {
  await using admin = await AdminUnderTest.start()
  admin.checks = [{ name: 'credentials', isOk: false, detail: 'rejected' }]
  const { exitCode, printed } = await run(admin.port)
  expect(exitCode).toBe(1)
  expect(printed).toContain('NOT READY')
  expect(printed).toContain('not ready: credentials: rejected\n')
})

test('escapes control characters that a client sent', async () => {
  await using admin = await AdminUnderTest.start()
  admin.requestEnded({ status: 400, code: 'target_invalid', path: '/\u001b[2J\n\u009b31m', orgId: undefined })
  const { printed } = await run(admin.port)
  expect(printed).toContain('/%1B[2J%0A')
  expect(printed.replaceAll('\n', '')).not.toMatch(/\p{Cc}/u)
})

test('explains how to open an address that serves health only', async () => {
  await using admin = await AdminUnderTest.start({ callers: 'here' })
  await expect(run(admin.port)).rejects.toThrow(
    'the admin listener answered 403: Callers can reach this address, and may not see or purge what is not theirs: it serves',
  )
})

test('a warning is printed with its beginning and its end in UTC; --json prints everything', async () => {
  await using admin = await AdminUnderTest.start()
  admin.paused = { text: 'No Org gets a new token.', leftMs: 3_600_000 }
  expect((await run(admin.port)).printed).toMatch(
    /^warning since [-\d]+ [\d:]+ UTC \(0 s\), until [-\d]+ [\d:]+ UTC \((1 h|59 min 59 s) left\): No Org gets a new token\.$/m,
  )
  const { printed } = await run(admin.port, true)
  expect(JSON.parse(printed)).toMatchObject({ warnings: [{ code: 'orgs_paused' }], isReady: true })
})
