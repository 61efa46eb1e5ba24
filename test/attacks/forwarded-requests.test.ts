/**
 * The attack: a program on this machine that forwards requests of others (a reverse proxy, a port mapping, a tunnel for
 * developers) puts the proxy on the network, and everyone there acts as the App. Such programs add these fields.
 */

import { describe, expect, test } from 'vitest'
import { get, sentFor, startTable } from '../support/case-table.ts'

const LINES = ['X-Forwarded-For: 1.2.3.4', 'Forwarded: for=1.2.3.4', 'X-Real-IP: 1.2.3.4', 'x-forwarded-for:']

describe('refused by default', async () => {
  const table = await startTable()
  const withLine = (line: string) => get('/v2/x', '{org}', line)
  table.refuses(sentFor(LINES, withLine), 403, 'forwarded_refused')
})

describe('accepted if listen.refuseForwarded is false, without `Forwarded`, which may name a host', async () => {
  const table = await startTable({ 'listen.refuseForwarded': 'false' })
  test.each(LINES)('%s', (line) => {
    const [name = '', value = ''] = line.split(/: ?/, 2)
    return table.run({
      send: get('/v2/x', '{org}', line),
      also: ({ requests }) => expect(requests[0]?.values(name)).toEqual(name === 'Forwarded' ? [] : [value]),
    })
  })
})
