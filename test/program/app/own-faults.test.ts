/**
 * A fault of our own in the middle of a request must not look like a failure of the service, and must leave a trace. A built-in
 * function of the language throws here, once, where the program uses it on a value of the test.
 */

import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { head } from '../../support/case-table.ts'
import { knowsReset, problemOf, RawClient, request } from '../../support/raw-client.ts'
import { startBoth } from '../../support/start-proxy.ts'

const SECRET = 'a value of the request'
/** Its second line looks like one of a stack. */
const MESSAGE = `it says:\n    ${SECRET}`

interface Fault extends Disposable {
  readonly wasThrown: boolean
}

type Method = (this: unknown, ...args: unknown[]) => unknown

function throwOnce(prototype: object, name: string, isMeant: (that: unknown, args: unknown[]) => boolean): Fault {
  const methods = prototype as Record<string, Method>
  const original = methods[name] as Method
  let wasThrown = false
  methods[name] = function (...args) {
    if (!wasThrown && isMeant(this, args)) {
      wasThrown = true
      throw new TypeError(MESSAGE)
    }
    return original.apply(this, args)
  }
  return {
    get wasThrown() {
      return wasThrown
    },
    [Symbol.dispose]: () => {
      methods[name] = original
    },
  }
}

const isCalledBy = (file: string) => new Error().stack?.includes(file) === true

const isText =
  (text: string) =>
  (that: unknown, [encoding, start, end]: unknown[]) =>
    encoding === 'latin1' &&
    Buffer.isBuffer(that) &&
    that.subarray(start as number, end as number).equals(Buffer.from(text))

test.each([
  [
    'the head of the response',
    async () => {
      await sleep(1_000) // the program renders the date once a second
      return throwOnce(Date.prototype, 'toUTCString', () => true)
    },
  ],
  ['the admission', () => throwOnce(Map.prototype, 'get', (_, [key]) => key === 'faulty' && isCalledBy('reception'))],
  ['the tokens', () => throwOnce(Map.prototype, 'get', (_, [key]) => key === 'faulty' && isCalledBy('orgs'))],
  ['the request', () => throwOnce(Buffer.prototype, 'toString', isText('sent content'))],
  [
    'the content of the request',
    () => throwOnce(Array.prototype, 'push', (_, [piece]) => Buffer.isBuffer(piece) && isCalledBy('client-content')),
  ],
  ['the content of the response', () => throwOnce(Buffer.prototype, 'toString', isText('the answer'))],
])('a fault in %s is answered with 500, and logged once with its stack', async (_, inject) => {
  const { proxy } = await startBoth({ script: () => ({ content: 'the answer' }) })
  const fields = ['Host: localhost', 'X-Org-Id: faulty', 'Content-Length: 12']
  const send = () => request(proxy.port, `${head('POST /v2/x HTTP/1.1', ...fields)}sent content`)
  {
    using fault = await inject()
    const response = await send()
    expect(fault.wasThrown).toBe(true)
    expect([response.status, problemOf(response).code]).toEqual([500, 'proxy_internal_error'])
  }
  const { status, code } = await proxy.logOf('/v2/x')
  expect([status, code]).toEqual([500, 'proxy_internal_error'])
  const faults = proxy.logs.filter(({ stack }) => stack !== undefined)
  expect(faults).toMatchObject([{ level: 'error', error: 'TypeError', requestId: expect.any(String) }])
  expect(JSON.stringify(faults)).toContain('/src/')
  expect(proxy.output).not.toContain(SECRET)
  expect((await send()).status).toBe(200)
})

/** A unix socket knows no reset. */
const BROKEN = knowsReset ? 'reset' : 'fin'

const isProblem =
  (code: string) =>
  (_: unknown, [value]: unknown[]) =>
    value !== null && typeof value === 'object' && 'status' in value && 'code' in value && value.code === code

test.each([
  ['to what is no request', 'request_invalid', 'GET / HTTP/1.1\r\nno field\r\n\r\n'],
  ['to a request that is not admitted', 'org_id_missing', head('GET /v2/x HTTP/1.1', 'Host: localhost')],
  ['to an admitted request', 'connection_terminated', head('GET /v2/x HTTP/1.1', 'Host: localhost', 'X-Org-Id: acme')],
])('a fault in the answer %s breaks off its connection, and is logged once with its stack', async (_, code, text) => {
  const { proxy } = await startBoth({ script: (_request, connection) => connection.reset() })
  {
    using fault = throwOnce(JSON, 'stringify', isProblem(code))
    await using client = await RawClient.sending(proxy.port, text)
    const { bytes, end } = await client.untilClosed()
    expect([bytes.length, end]).toEqual([0, BROKEN])
    expect(fault.wasThrown).toBe(true)
  }
  const faults = proxy.logs.filter(({ stack }) => stack !== undefined)
  expect(faults).toMatchObject([{ level: 'error', error: 'TypeError', requestId: expect.any(String) }])
  expect(proxy.logs.filter((line) => line['code'] === code)).toHaveLength(1)
  expect(problemOf(await request(proxy.port, text)).code).toBe(code)
})

test('a fault that no request knows of breaks off its connection, and is logged once with its stack', async () => {
  const { proxy } = await startBoth()
  const text = head('OPTIONS /v2/x HTTP/1.1', 'Host: localhost', 'X-Org-Id: acme', 'Max-Forwards: 0')
  {
    using fault = throwOnce(
      Array.prototype,
      'join',
      (that) => Array.isArray(that) && that[0] === 'HTTP/1.1 204 No Content',
    )
    await using client = await RawClient.sending(proxy.port, text)
    expect((await client.untilClosed()).end).toBe(BROKEN)
    expect(fault.wasThrown).toBe(true)
  }
  expect(proxy.logs.filter(({ stack }) => stack !== undefined)).toMatchObject([{ level: 'error', error: 'TypeError' }])
  await proxy.until(() => proxy.logs.some(({ code }) => code === 'client_closed'), 'the line of the request')
  expect((await request(proxy.port, text)).status).toBe(204)
})
