/** What Node does, but does not document: each test fails on a version of Node where that has changed. */

import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { expect, test } from 'vitest'
import { keepReading, kept, readAccepted, release, resetConnection } from '../../src/node-internals.ts'
import { eventually } from '../support/changes.ts'

/** Two ends of a connection. Neither is read. */
async function pair(): Promise<AsyncDisposable & { readonly client: Socket; readonly server: Socket }> {
  const listener = createServer({ pauseOnConnect: true, allowHalfOpen: true }).listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const address = listener.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  const client = connect({ port: address.port, host: '127.0.0.1', allowHalfOpen: true }).pause()
  const [[server]] = await Promise.all([once(listener, 'connection'), once(client, 'connect')])
  for (const socket of [client, server]) socket.on('error', () => undefined)
  return {
    client,
    server,
    [Symbol.asyncDispose]: async () => {
      client.destroy()
      server.destroy()
      await new Promise((resolve) => listener.close(resolve))
    },
  }
}

test('a reset has no FIN before it', async () => {
  await using ends = await pair()
  const { client, server } = ends
  let hasEnded = false
  server.on('end', () => {
    hasEnded = true
  })
  server.resume()
  const failed = once(server, 'error')
  resetConnection(client, client)
  expect(await failed).toMatchObject([{ code: 'ECONNRESET' }])
  expect(hasEnded).toBe(false)
})

test('behind a write that failed, what came before is read', async () => {
  await using ends = await pair()
  const { client, server } = ends
  let wasTold = false
  keepReading(client, (done) => {
    wasTold = true
    done()
  })
  server.end('the answer')
  server.destroySoon()
  await once(server, 'close')
  await eventually(() => {
    client.write('more')
    return wasTold || undefined
  }, 'a write that fails')
  expect(client.destroyed).toBe(false)
  const [bytes] = await once(client.resume(), 'data')
  expect(String(bytes)).toBe('the answer')
})

test('the memory of a large piece is freed at once, and that of a part of one stays', () => {
  const whole = Buffer.allocUnsafeSlow(64 * 1024)
  const part = Buffer.allocUnsafeSlow(64 * 1024).subarray(1)
  release(whole)
  release(part)
  expect([whole.length, part.length]).toEqual([0, 64 * 1024 - 1])
})

test.each(['in one buffer', 'in buffers of its own'])(
  'an accepted socket is read %s, and counts until it closes',
  async (where) => {
    const buffers = new Set<unknown>()
    let text = ''
    const listener = createServer({ allowHalfOpen: true }, (accepted) => {
      // Without this field, it has not what is needed.
      const isPlain = where !== 'in one buffer'
      const server = Object.getOwnPropertyDescriptor(accepted, '_server')
      if (isPlain) Object.assign(accepted, { _server: null })
      const socket = readAccepted(accepted, (bytes, length) => {
        buffers.add(bytes.buffer)
        text += kept(bytes, 0, length).toString()
        socket.write(`${length}`)
        return true
      })
      if (isPlain) Object.assign(accepted, { _server: server?.value })
      socket.on('end', () => socket.end('end'))
    }).listen(0, '127.0.0.1')
    await once(listener, 'listening')
    const port = (listener.address() as AddressInfo).port
    const clients = Array.from({ length: 2 }, () => connect(port, '127.0.0.1'))
    for (const client of clients) {
      client.write('hello')
      expect(String((await once(client, 'data'))[0])).toBe('5')
    }
    const count = () => new Promise((resolve) => listener.getConnections((_, connections) => resolve(connections)))
    expect([text, buffers.size, await count()]).toEqual(['hellohello', where === 'in one buffer' ? 1 : 2, 2])
    const closed = once(listener.close(), 'close')
    for (const client of clients) {
      client.end()
      expect(String((await once(client, 'data'))[0])).toBe('end')
    }
    await closed
  },
)
