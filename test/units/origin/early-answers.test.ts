/**
 * A service answers before it has read the content, and closes: its kernel resets the connection. Our next write fails
 * while the answer still lies in our receive buffer. Each test writes in the same turn of the event loop in which the
 * service closes, so that the write fails before the answer has been read.
 */

import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { createSecureContext, createServer as createTlsServer } from 'node:tls'
import { describe, expect, test } from 'vitest'
import type { ContentSource, ContentWriter } from '../../../src/origin/attempt.ts'
import { ConnectionPool } from '../../../src/origin/connection-pool.ts'
import { CA_FILE, certificate } from '../../support/certificates.ts'
import { listening } from '../../support/listening.ts'
import { Recorder } from '../../support/recorder.ts'

const EARLY_HEAD = 'HTTP/1.1 413 Content Too Large\r\n'
const EARLY = `${EARLY_HEAD}Content-Length: 5\r\n\r\nearly`
const PIECE = Buffer.alloc(16 * 1024, 'x')

/** Content that the test sends in pieces. */
class Upload implements ContentSource {
  isDetached = false
  #writer: ContentWriter | undefined

  streamTo(writer: ContentWriter): void {
    this.#writer = writer
  }

  send(): void {
    this.#writer?.write(Buffer.from(PIECE), false)
  }

  resume(): void {}

  detach(): void {
    this.isDetached = true
  }
}

/** `service` of the result is the end of the connection at the service, which has unread bytes. */
async function meet(isSecure: boolean, fields: { readonly contentLength?: number | undefined } = {}) {
  const server: Server = isSecure ? createTlsServer(certificate('localhost')) : createServer()
  const { port, [Symbol.asyncDispose]: stop } = await listening(server, isSecure ? 'localhost' : '127.0.0.1')
  const secureContext = createSecureContext({ ca: readFileSync(CA_FILE, 'utf8') })
  const origin = new ConnectionPool({
    baseUrl: new URL(isSecure ? `https://localhost:${port}` : `http://127.0.0.1:${port}`),
    connections: 1,
    connectTimeoutMs: 5_000,
    ...(isSecure && { secureContext }),
  })
  const upload = new Upload()
  const recorder = new Recorder({ method: 'PUT', content: upload, contentLength: 2_000_000, ...fields })
  const accepted = once(server, isSecure ? 'secureConnection' : 'connection')
  origin.dispatch(recorder.attempt)
  const [service] = (await accepted) as [Socket]
  service.on('error', () => {})
  await once(service, 'data')
  service.pause()
  upload.send()
  // Stays unread in the kernel of the service.
  await new Promise((resolve) => setImmediate(resolve))
  return {
    recorder,
    upload,
    service,
    origin,
    [Symbol.dispose]: () => {
      origin.close()
      void stop()
    },
  }
}

/**
 * Writes `answer`, closes, and sends more of `upload` in the same turn. The kernel answers the first write behind the
 * close with a reset, if it has not sent one for what it had not read; so at least the second one fails.
 */
function answerAndClose(service: Socket, answer: string, upload: Upload): Promise<void> {
  return new Promise((resolve) => {
    service.write(answer, () => {
      service.destroy()
      upload.send()
      upload.send()
      resolve()
    })
  })
}

test('an answer on a connection that stays open ends the upload, too', async () => {
  using meeting = await meet(false)
  const { service, recorder, upload } = meeting
  service.write(EARLY)
  await recorder.ended()
  expect(upload.isDetached).toBe(true)
  expect(recorder.attempt.holder).toBeUndefined()
  // The rest of the content must not be read as the next request.
  expect(meeting.origin.stats).toEqual({ connected: 0, free: 0, pending: 0 })
})

test('an aborted upload ends', async () => {
  using meeting = await meet(false)
  const { recorder, upload } = meeting
  recorder.attempt.abort(new Error('given up'))
  expect((await recorder.failed()).message).toBe('given up')
  expect([upload.isDetached, recorder.attempt.holder]).toEqual([true, undefined])
})

describe.each([
  ['TCP', false],
  ['TLS', true],
])('over %s', (_, isSecure) => {
  test.each([
    ['arrives', 'with its length', 2_000_000, EARLY, 'early', 'end'],
    ['arrives', 'in chunks', undefined, EARLY, 'early', 'end'],
    ['that is cut fails', 'with its length', 2_000_000, EARLY.slice(0, -2), 'ear', 'failed'],
    ['that ends with the connection fails', 'with its length', 2_000_000, `${EARLY_HEAD}\r\nearly`, 'early', 'failed'],
  ])(
    'an answer %s, although the next write of content %s fails',
    async (_, __, contentLength, answer, content, end) => {
      using meeting = await meet(isSecure, { contentLength })
      const { service, recorder, upload } = meeting
      await answerAndClose(service, answer, upload)
      await recorder.waitFor(({ isOver }) => isOver, 'the end')
      expect([recorder.head?.status, recorder.content.toString(), recorder.told.at(-1)]).toEqual([413, content, end])
      expect(upload.isDetached).toBe(true)
      expect(meeting.origin.stats).toEqual({ connected: 0, free: 0, pending: 0 })
    },
  )

  test('a FIN before the reset changes nothing', async () => {
    using meeting = await meet(isSecure)
    const { service, recorder, upload } = meeting
    service.end(EARLY)
    await once(service, 'finish')
    service.destroy()
    upload.send()
    upload.send()
    await recorder.ended()
    expect([recorder.head?.status, recorder.content.toString()]).toEqual([413, 'early'])
  })

  test('a reset without an answer is a failure, reported once', async () => {
    using meeting = await meet(isSecure)
    const { service, recorder, upload } = meeting
    service.destroy()
    upload.send()
    upload.send()
    await recorder.failed()
    expect(recorder.attempt.hasResponse).toBe(false)
    expect(recorder.told).toEqual(['connected', 'failed'])
    expect(upload.isDetached).toBe(true)
  })

  test('a slow reader gets the whole answer', async () => {
    using meeting = await meet(isSecure)
    const { service, recorder, upload } = meeting
    recorder.use = 'pause'
    service.write('HTTP/1.1 413 Content Too Large\r\nContent-Length: 30000\r\n\r\nfirst')
    await recorder.waitFor(({ content }) => content.length > 0, 'the first content')
    // Nobody reads, so this stays in our receive buffer.
    await answerAndClose(service, 'y'.repeat(30_000 - 'first'.length), upload)
    while (!recorder.isOver) {
      const { length } = recorder.content
      recorder.attempt.resume()
      await recorder.waitFor(({ content, isOver }) => content.length > length || isOver, 'more content')
    }
    expect(recorder.error).toBeUndefined()
    expect(recorder.content).toHaveLength(30_000)
  })
})
