/** Content that takes its time: an event stream, and as many bytes as are asked for. */

import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { OrgExchange } from './exchange.ts'
import { pause } from './pause.ts'

/** 251 is prime: the pattern shifts against every power of two, so a lost or doubled block shows. */
const PATTERN = Buffer.from(Array.from({ length: 251 * 256 }, (_, index) => index % 251))

interface EventsOptions {
  readonly count: number
  readonly intervalMs: number
}

/** Events as HTML's `EventSource` reads them: one at once, each further one after the interval. */
export async function answerEvents({ response, org }: OrgExchange, options: EventsOptions): Promise<void> {
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' })
  response.flushHeaders()
  for (let number = 1; number <= options.count; number += 1) {
    if (number > 1 && !(await pause(options.intervalMs, response))) return
    response.write(`id: ${number}\ndata: ${JSON.stringify({ org, number })}\n\n`)
  }
  response.end()
}

interface BytesOptions {
  readonly sizeBytes: number
  readonly chunked: boolean
}

/** The byte at offset n is n modulo 251, so that a client can check any range of any size. */
export async function answerBytes({ request, response }: OrgExchange, options: BytesOptions): Promise<void> {
  const length = options.chunked ? {} : { 'content-length': options.sizeBytes }
  response.writeHead(200, { 'content-type': 'application/octet-stream', ...length })
  if (request.method === 'HEAD') {
    response.end()
    return
  }
  await pipeline(Readable.from(patternOf(options.sizeBytes), { objectMode: false }), response)
}

function* patternOf(sizeBytes: number): Generator<Buffer> {
  for (let left = sizeBytes; left > 0; left -= PATTERN.length) {
    yield left >= PATTERN.length ? PATTERN : PATTERN.subarray(0, left)
  }
}
