import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { writes } from '../support/origin-connection.ts'
import { fieldOf, RawClient } from '../support/raw-client.ts'
import { startBoth } from '../support/start-proxy.ts'

test.each([
  [304, 'a length that tells of a 200', 'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 10\r\n\r\n', '10'],
  [304, 'no length', 'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n', undefined],
  [204, 'no length', 'HTTP/1.1 204 No Content\r\n\r\n', undefined],
  [204, 'a length, which it must not have', 'HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n', undefined],
])('a %i with %s is complete, and the client connection stays open', async (status, _, raw, length) => {
  const { proxy } = await startBoth({
    script: writes(raw),
  })
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
