/** Rare but correct responses: interim ones, heads of many kilobytes, no reason, no content where none is allowed. */

import { describe, expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { type Fault, startFaultTable } from '../support/fault-table.ts'
import { problemOf, request } from '../support/raw-client.ts'

const table = await startFaultTable({ 'origin.responseTimeout': '400ms' })

const OK = 'HTTP/1.1 200 OK\r\n'

describe('unusual but correct responses', () => {
  const whole = (name: string, writes: string, status: number, content = ''): Fault => ({
    name,
    writes,
    ends: 'nothing',
    status,
    also: (response) => expect(response.content.toString()).toBe(content),
  })
  test.each<Fault>([
    whole(
      'interim responses',
      `${'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n'.repeat(3)}HTTP/1.1 102 Processing\r\n\r\n${OK}Content-Length: 2\r\n\r\nok`,
      200,
      'ok',
    ),
    whole('a 100 that nobody asked for', `HTTP/1.1 100 Continue\r\n\r\n${OK}Content-Length: 2\r\n\r\nok`, 200, 'ok'),
    whole('no reason', 'HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok', 200, 'ok'),
    whole('no reason and no space', 'HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok', 200, 'ok'),
    whole('a status without a meaning', 'HTTP/1.1 299 Fine\r\nContent-Length: 2\r\n\r\nok', 299, 'ok'),
    whole(
      'a head of 20 KB',
      `${OK}${Array.from({ length: 20 }, (_, i) => `F${i}: ${'a'.repeat(1000)}\r\n`).join('')}Content-Length: 2\r\n\r\nok`,
      200,
      'ok',
    ),
    whole('204', 'HTTP/1.1 204 No Content\r\n\r\n', 204),
    whole(
      '304 with the length of what it stands for',
      'HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\nETag: "a"\r\n\r\n',
      304,
    ),
    whole('205', 'HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n', 205),
    whole('an empty chunked one', `${OK}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n`, 200),
    whole(
      'chunk extensions and a trailer',
      `${OK}Transfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\nX-T: 1\r\n\r\n`,
      200,
      'ok',
    ),
    { ...whole('HEAD with a length', `${OK}Content-Length: 99\r\n\r\n`, 200), method: 'HEAD' },
    { ...whole('HEAD of chunks', `${OK}Transfer-Encoding: chunked\r\n\r\n`, 200), method: 'HEAD' },
  ])('$name', (row) => table.run(row))

  test('endless interim responses are an error', async () => {
    const target = table.target(async (_, connection) => {
      while (!connection.isClosed && connection.peerEnd === undefined) {
        connection.write('HTTP/1.1 103 Early Hints\r\n\r\n')
        await new Promise((resolve) => setTimeout(resolve, 20))
      }
      return undefined
    })
    const response = await request(table.proxy.port, get(target, 'acme'), { deadlineMs: 3000 })
    expect(response.status).toBe(504)
    expect(problemOf(response).code).toBe('http_response_timeout')
  })
})
