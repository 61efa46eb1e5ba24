/** One GiB in each direction, whichever side is slow: content streams, and the process does not grow with it. */

import { readFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import { connect, type Socket } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type SpawnedProxy, spawnProxy } from '../support/spawn-proxy.ts'

const GIB = 1024 ** 3
const MIB = 1024 ** 2
/** The process may grow by this much. */
const ROOM_BYTES = 48 * MIB
const block = Buffer.alloc(MIB, 'x')

let origin: Server
let proxy: SpawnedProxy
let port: number

beforeAll(async () => {
  origin = createServer((message, response) => {
    if (message.url?.endsWith('/access')) {
      message.resume()
      response.end(JSON.stringify({ orgAccessToken: 'token' }))
      return
    }
    if (message.method === 'GET') {
      response.setHeader('Content-Length', GIB)
      sendBlocks(response, GIB / MIB, message.url === '/slow')
      return
    }
    let received = 0
    message.on('data', (chunk: Buffer) => {
      received += chunk.length
      if (message.url === '/slow') pauseBriefly(message, received)
    })
    message.on('end', () => response.end(String(received)))
  })
  await new Promise<void>((resolve) => origin.listen(0, '127.0.0.1', resolve))
  const address = origin.address()
  proxy = spawnProxy({
    env: {
      OAP_APP_ID: 'app',
      OAP_APP_SECRET: 'secret',
      OAP_BASE_URL: `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`,
      OAP_LISTEN_ADDRESS: '127.0.0.1:0',
      OAP_ADMIN_ADDRESS: 'off',
    },
  })
  port = (await proxy.ready()).port
  // Warm-up: loads the code and makes the first buffers before anything is measured.
  await download('/warm', 64 * MIB)
  await upload('/warm', 64)
})

afterAll(async () => {
  await proxy[Symbol.asyncDispose]()
  origin.closeAllConnections()
  await new Promise((resolve) => origin.close(resolve))
})

/** Pauses, so that the other side meets a full buffer a few times in a transfer. */
function pauseBriefly(stream: { pause(): unknown; resume(): unknown }, receivedBytes: number): void {
  if (Math.floor(receivedBytes / (64 * MIB)) === Math.floor((receivedBytes - 65_536) / (64 * MIB))) return
  stream.pause()
  setTimeout(() => stream.resume(), 50)
}

function sendBlocks(sink: NodeJS.WritableStream, blocks: number, isSlow: boolean): void {
  let left = blocks
  const more = () => {
    while (left > 0) {
      left--
      if (!sink.write(block)) break
    }
    if (left === 0) sink.end()
    else if (isSlow && left % 64 === 0) setTimeout(more, 50)
    else sink.once('drain', more)
  }
  more()
}

async function residentBytes(): Promise<number> {
  const status = await readFile(`/proc/${proxy.pid}/status`, 'utf8')
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) * 1024
}

/** Runs a transfer and resolves with the most that the process grew by while it ran. */
async function growthDuring(transfer: () => Promise<void>): Promise<number> {
  const before = await residentBytes()
  let peak = before
  const watch = setInterval(() => {
    residentBytes().then(
      (bytes) => {
        peak = Math.max(peak, bytes)
      },
      () => undefined,
    )
  }, 20)
  try {
    await transfer()
  } finally {
    clearInterval(watch)
  }
  return Math.max(peak, await residentBytes()) - before
}

function open(head: string): Socket {
  const socket = connect(port, '127.0.0.1')
  socket.write(`${head}\r\nHost: localhost\r\nX-Org-Id: acme\r\nConnection: close\r\n`)
  return socket
}

/** Reads `atLeast` octets of a response, or all of it. */
function download(target: string, atLeast: number, isSlow = false): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = open(`GET ${target} HTTP/1.1`)
    socket.write('\r\n')
    let received = 0
    socket.on('data', (chunk: Buffer) => {
      received += chunk.length
      if (isSlow) pauseBriefly(socket, received)
      if (received < atLeast) return
      socket.destroy()
      resolve()
    })
    socket.on('error', reject)
    socket.on('end', () => reject(new Error(`ended after ${received} octets`)))
  })
}

function upload(target: string, blocks: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = open(`POST ${target} HTTP/1.1`)
    socket.write('Transfer-Encoding: chunked\r\n\r\n')
    let answer = ''
    socket.on('data', (chunk) => {
      answer += String(chunk)
    })
    socket.on('error', reject)
    socket.on('close', () => {
      if (answer.includes(String(blocks * MIB))) resolve()
      else reject(new Error(`answered ${answer}`))
    })
    let left = blocks
    const size = `${MIB.toString(16)}\r\n`
    const more = () => {
      while (left-- > 0) {
        socket.write(size)
        socket.write(block)
        if (!socket.write('\r\n')) {
          socket.once('drain', more)
          return
        }
      }
      socket.write('0\r\n\r\n')
    }
    more()
  })
}

test.each<[string, () => Promise<void>]>([
  ['down', () => download('/fast', GIB)],
  ['down, the origin slow', () => download('/slow', GIB)],
  ['down, the client slow', () => download('/fast', GIB, true)],
  ['up', () => upload('/fast', 1024)],
  ['up, the origin slow', () => upload('/slow', 1024)],
])('1 GiB %s', async (_, transfer) => {
  expect(await growthDuring(transfer)).toBeLessThan(ROOM_BYTES)
})
