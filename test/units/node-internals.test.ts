/** What Node does, but does not document: each test fails on a version of Node where that has changed. */

import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import tls from 'node:tls'
import { expect, test } from 'vitest'
import {
  beginTls,
  keepReading,
  kept,
  pauseForTurn,
  pushRead,
  readAccepted,
  release,
  resetConnection,
  wasReset,
} from '../../src/node-internals.ts'
import { CA_FILE, certificate } from '../support/certificates.ts'
import { eventually } from '../support/changes.ts'

/** Two ends of a connection. Neither is read. With `reader`, the client is read into one buffer (`onread`). */
async function pair(
  reader?: (bytes: Buffer) => void,
): Promise<AsyncDisposable & { readonly client: Socket; readonly server: Socket }> {
  const listener = createServer({ pauseOnConnect: true, allowHalfOpen: true }).listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const address = listener.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  const buffer = Buffer.alloc(64 * 1024)
  const callback = (length: number) => reader?.(buffer.subarray(0, length)) ?? true
  const onread = reader && { buffer, callback }
  const client = connect({
    port: address.port,
    host: '127.0.0.1',
    allowHalfOpen: true,
    ...(onread && { onread }),
  }).pause()
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

/** Sends a piece and a reset, which `client` finds together when it reads on. */
async function sendAndReset({ client, server }: { readonly client: Socket; readonly server: Socket }): Promise<void> {
  await new Promise((resolve) => server.write('a part', resolve))
  server.resetAndDestroy()
  await once(server, 'close')
  client.resume()
}

test('behind a pause for a turn, a reset that came with data is read as one', async () => {
  await using ends = await pair(() => pauseForTurn(ends.client, () => true))
  const { client } = ends
  let hasEnded = false
  client.on('end', () => {
    hasEnded = true
  })
  const failed = once(client, 'error')
  await sendAndReset(ends)
  expect(await failed).toMatchObject([{ code: 'ECONNRESET' }])
  expect(hasEnded).toBe(false)
})

test('a pause for a turn lasts, if nobody may resume', async () => {
  let text = ''
  await using ends = await pair((bytes) => {
    text += bytes
    pauseForTurn(ends.client, () => false)
  })
  const { client, server } = ends
  client.resume()
  server.write('one')
  await eventually(() => text === 'one' || undefined, 'the first piece')
  await new Promise((resolve) => server.write('two', resolve))
  await new Promise((resolve) => setImmediate(() => setImmediate(resolve)))
  expect(text).toBe('one')
  client.resume()
  await eventually(() => text === 'onetwo' || undefined, 'the second piece')
})

// From Node 24 on, libuv tells of such a reset as of an error.
test('a socket that was reset behind bytes has no peer at its end, and one that was ended has', async () => {
  for (const isReset of [true, false]) {
    await using ends = await pair()
    const { client, server } = ends
    const told = once(client, 'end').then(
      () => wasReset(client),
      ({ code }) => code === 'ECONNRESET',
    )
    if (isReset) await sendAndReset(ends)
    else {
      server.end('all')
      client.resume()
    }
    expect(await told).toBe(isReset)
  }
})

test('what was read is given to whoever reads the socket as a stream, and not while that is paused', async () => {
  let text = ''
  let hasEnded = false
  const listener = createServer({ allowHalfOpen: true }, (accepted) => {
    const socket = readAccepted(accepted, (bytes, length) => pushRead(socket, kept(bytes, 0, length)))
    socket.on('data', (bytes) => {
      text += bytes
      socket.pause()
    })
    socket.on('end', () => {
      hasEnded = true
      socket.end()
    })
    resume = () => socket.resume()
  }).listen(0, '127.0.0.1')
  let resume: (() => void) | undefined
  await once(listener, 'listening')
  const client = connect((listener.address() as AddressInfo).port, '127.0.0.1').resume()
  client.write('one')
  await eventually(() => text === 'one' || undefined, 'the first piece')
  await new Promise((resolve) => client.write('two', resolve))
  await new Promise((resolve) => setImmediate(() => setImmediate(resolve)))
  expect(text).toBe('one')
  resume?.()
  await eventually(() => text === 'onetwo' || undefined, 'the second piece')
  client.end()
  resume?.()
  await eventually(() => hasEnded || undefined, 'the end')
  await new Promise((resolve) => listener.close(resolve))
})

test('TLS begins on a connection that was accepted elsewhere, with the name that its client asks for', async () => {
  const server = tls.createServer({ ...certificate('localhost'), handshakeTimeout: 200 })
  const listener = createServer((carrier) => beginTls(server, carrier)).listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const { port } = listener.address() as AddressInfo
  const secured = once(server, 'secureConnection')
  const client = tls.connect({ port, host: '127.0.0.1', servername: 'localhost', ca: readFileSync(CA_FILE) })
  const [socket] = (await secured) as [tls.TLSSocket]
  expect(socket.servername).toBe('localhost')
  socket.end('hello')
  expect(String((await once(client, 'data'))[0])).toBe('hello')
  const failed = once(server, 'tlsClientError')
  const silent = connect(port, '127.0.0.1')
  expect((await failed)[0]).toMatchObject({ code: 'ERR_TLS_HANDSHAKE_TIMEOUT' })
  client.destroy()
  silent.destroy()
  await new Promise((resolve) => listener.close(resolve))
})
