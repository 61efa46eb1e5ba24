/** Responses of the origin are cut at a random byte: the client never gets a response that looks complete. */

import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import type { OriginScript } from '../support/origin-connection.ts'
import { RawClient, type RawResponse } from '../support/raw-client.ts'
import { type Random, withSeed } from '../support/seed.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'
import { expectWholePool } from '../support/whole-pool.ts'

const RESPONSES = 2_000
const AT_ONCE = 16
const PLACES = 16

interface Cut {
  readonly bytes: Buffer
  readonly end: 'fin' | 'reset'
}

function wholeResponse(random: Random): { readonly bytes: Buffer; readonly endsWithConnection: boolean } {
  const content = Buffer.from('x'.repeat(random.integer(1, 20_000)))
  const head = 'HTTP/1.1 200 OK\r\nX-Some: field\r\n'
  switch (random.integer(0, 2)) {
    case 0:
      return {
        bytes: Buffer.from(`${head}Content-Length: ${content.length}\r\n\r\n${content}`),
        endsWithConnection: false,
      }
    case 1: {
      const at = random.integer(0, content.length)
      const chunks = [content.subarray(0, at), content.subarray(at)].filter(({ length }) => length > 0).map(asChunk)
      const parts = [Buffer.from(`${head}Transfer-Encoding: chunked\r\n\r\n`), ...chunks, Buffer.from('0\r\n\r\n')]
      return { bytes: Buffer.concat(parts), endsWithConnection: false }
    }
    default:
      return { bytes: Buffer.from(`${head}Connection: close\r\n\r\n${content}`), endsWithConnection: true }
  }
}

function asChunk(bytes: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from('\r\n')])
}

/** At least one byte is missing. If content ends with its connection, nobody can tell a FIN from a cut. */
function cutResponse(random: Random): Cut {
  const { bytes, endsWithConnection } = wholeResponse(random)
  const headBytes = bytes.indexOf('\r\n\r\n') + 4
  const end = endsWithConnection ? 'reset' : random.pick(['fin', 'reset'] as const)
  const at = random.chance(0.2) ? random.integer(0, headBytes) : random.integer(headBytes, bytes.length - 1)
  return { bytes: bytes.subarray(0, at), end }
}

/** The response, or undefined if the connection ended before. */
async function receive(client: RawClient): Promise<RawResponse | undefined> {
  return await client.response().catch((error: Error) => {
    if (error.name !== 'StreamEnded') throw error
    return undefined
  })
}

test(`${RESPONSES} cuts`, () =>
  withSeed(async (random) => {
    const cuts = Array.from({ length: RESPONSES }, () => cutResponse(random))
    const script: OriginScript = (seen, connection) => {
      const { bytes, end } = cuts[Number(seen.target.slice('/v2/'.length))] as Cut
      connection.write(bytes)
      if (end === 'fin') connection.end()
      // The written bytes arrive first, so that the client has something that could look complete.
      else connection.socket.write('', () => setImmediate(() => connection.reset()))
      return undefined
    }
    await using service = await startService({ script })
    await using proxy = await startProxy(service, { 'origin.connections': `${PLACES}` })
    let next = 0
    let visiblyCut = 0
    const client = async () => {
      while (next < RESPONSES) {
        const id = next++
        await using raw = await RawClient.connect(proxy.port, { deadlineMs: 10_000 })
        raw.send(get(`/v2/${id}`, 'acme'))
        const response = await receive(raw)
        if (response?.status !== 502) expect(response?.isComplete ?? false, `cut ${id} looks whole`).toBe(false)
        if (response?.status === 200) visiblyCut++
      }
    }
    await Promise.all(Array.from({ length: AT_ONCE }, client))
    expect(visiblyCut, 'responses that had begun').toBeGreaterThan(RESPONSES / 4)
    await expectWholePool(proxy.port, service, PLACES)
  }))
