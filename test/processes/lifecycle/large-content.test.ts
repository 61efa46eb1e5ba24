/** Large content in each direction, whichever side is slow, streams, and the process does not grow with it. */

import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { Readable } from 'node:stream'
import { json } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startSandbox } from '../../../src/sandbox/sandbox.ts'
import { type ProxyProcess, startProxyProcess } from '../../support/proxy-process.ts'

const MIB = 1024 ** 2
const CONTENT_MIB = 96
/** The process may grow by this much. */
const ROOM_BYTES = 48 * MIB
const block = Buffer.alloc(MIB, 'x')

const sandbox = await startSandbox({ linked: '*' })
let proxy: ProxyProcess
beforeAll(async () => {
  proxy = await startProxyProcess(sandbox)
  // Warm-up: loads the code and makes the first buffers before anything is measured.
  await download(48)
  await upload(48)
})
afterAll(async () => {
  await proxy[Symbol.asyncDispose]()
  await sandbox.close()
})

async function send(path: string, method: string, content: Iterable<Buffer> = []): Promise<IncomingMessage> {
  const headers = { 'x-org-id': 'acme', connection: 'close' }
  const outgoing = request({ host: '127.0.0.1', port: proxy.port, path: `/v2/example/${path}`, method, headers })
  const answered = once(outgoing, 'response')
  await pipeline(Readable.from(content), outgoing)
  const [response] = await answered
  return response
}

/** A slow client pauses, so that the service meets full buffers a few times in a transfer. */
async function download(mebibytes: number, isSlow = false): Promise<void> {
  const response = await send(`bytes?size=${mebibytes * MIB}`, 'GET')
  let received = 0
  for await (const chunk of response) {
    if (isSlow && Math.floor(received / (32 * MIB)) < Math.floor((received + chunk.length) / (32 * MIB))) await paused()
    received += chunk.length
  }
  expect(received).toBe(mebibytes * MIB)
}

const paused = () => new Promise((resolve) => setTimeout(resolve, 50))

async function upload(mebibytes: number): Promise<void> {
  const response = await send('upload', 'POST', Array(mebibytes).fill(block))
  expect(await json(response)).toMatchObject({ content: { lengthBytes: mebibytes * MIB } })
}

test.each<[string, () => Promise<void>]>([
  ['down', () => download(CONTENT_MIB)],
  ['down, the client slow', () => download(CONTENT_MIB, true)],
  ['up', () => upload(CONTENT_MIB)],
])(`${CONTENT_MIB} MiB %s`, async (_, transfer) => {
  const { residentBytes } = await proxy.memory()
  await transfer()
  expect((await proxy.memory()).peakBytes - residentBytes).toBeLessThan(ROOM_BYTES)
})
