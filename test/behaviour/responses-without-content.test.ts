import { expect, test } from 'vitest'
import { get, HOST, head } from '../support/case-table.ts'
import { fieldOf, problemOf, RawClient } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

test.each([
  [304, 'a length that tells of a 200', 'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 10\r\n\r\n', '10'],
  [304, 'no length', 'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n', undefined],
  [204, 'no length', 'HTTP/1.1 204 No Content\r\n\r\n', undefined],
  [204, 'a length, which it must not have', 'HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n', undefined],
])('a %i with %s is complete, and the client connection stays open', async (status, _, raw, length) => {
  await using service = await startService({
    script: (__, connection) => {
      connection.write(raw)
      return undefined
    },
  })
  await using proxy = await startProxy(service)
  await using client = await RawClient.connect(proxy.port)
  for (let i = 0; i < 3; i++) {
    client.send(get(`/v2/${i}`, 'acme'))
    const response = await client.response()
    expect(response).toMatchObject({ status, isComplete: true })
    expect(fieldOf(response, 'content-length')).toBe(length)
    const line = await proxy.logOf(`/v2/${i}`)
    expect(line).toMatchObject({ status })
    expect(line).not.toHaveProperty('code')
  }
})

const BROKEN: readonly (readonly [string, number, string])[] = [
  ['a name with a blank', 400, 'Bad Name: 1'],
  ['two lengths', 400, 'Content-Length: 1\r\nContent-Length: 2'],
  // Under TLS it comes in two records, and the refusal of the second does not know of the HEAD in the first.
  ...(process.env['TEST_TLS'] === '1' ? [] : [['17 KB', 431, `F: ${'a'.repeat(17_000)}`] as const]),
]

test.each(BROKEN)('the refusal of a malformed HEAD has no content either: %s', async (_, status, line) => {
  await using service = await startService()
  await using proxy = await startProxy(service)
  for (const [method, hasContent] of [
    ['HEAD', false],
    ['GET', true],
  ] as const) {
    await using client = await RawClient.sending(proxy.port, head(`${method} /v2/x HTTP/1.1`, HOST, line))
    const response = await client.response(method)
    expect(response.status).toBe(status)
    expect(fieldOf(response, 'connection')).toBe('close')
    // RFC 9110 §6.6.1: a server with a clock sends Date, here as everywhere else.
    expect(Date.now() - Date.parse(fieldOf(response, 'date') ?? '')).toBeLessThan(60_000)
    if (hasContent) expect(problemOf(response)).toMatchObject({ status })
    expect((await client.untilClosed()).bytes.toString()).toBe('')
  }
})
