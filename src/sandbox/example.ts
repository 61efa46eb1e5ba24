/**
 * The sandbox's API under `/v2/example/`: echo, event stream, bytes, WebSocket.
 * Every other path gets the echo, because the paths of the real service are not known.
 */

import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { WebSocketServer } from 'ws'
import { type Exchange, pause, Refusal, send } from './exchange.ts'

/** `credentials`: the headers that carry them. */
export async function answerExample(exchange: Exchange, org: string, credentials: readonly string[]): Promise<void> {
  const [, name] = /^\/v[\d.]+\/example\/([a-z]+)$/.exec(exchange.path) ?? []
  const query = new URLSearchParams(exchange.query)
  switch (name) {
    case 'events':
      return answerEvents(exchange, org, numberOf(query, 'count', 5), numberOf(query, 'intervalMs', 1000))
    case 'bytes':
      return answerBytes(exchange, numberOf(query, 'size', 1024), query.get('chunked') === '1')
    case 'socket':
      return answerSocket(exchange)
    default:
      return answerEcho(exchange, org, credentials)
  }
}

/** A whole number from the query; `fallback` if it is missing or none. */
function numberOf(query: URLSearchParams, name: string, fallback: number): number {
  const text = query.get(name) ?? ''
  return /^\d{1,15}$/.test(text) ? Number(text) : fallback
}

/** The echo hides these: an app behind the proxy must not learn the token from it. */
const CREDENTIALS = ['authorization', 'proxy-authorization', 'x-proxy-key']

async function answerEcho(
  { request, response, path, query }: Exchange,
  org: string,
  credentials: readonly string[],
): Promise<void> {
  const { method, rawHeaders } = request
  const hash = createHash('sha256')
  let lengthBytes = 0
  for await (const chunk of request) {
    hash.update(chunk)
    lengthBytes += chunk.length
  }
  const hidden = new Set([...CREDENTIALS, ...credentials.map((name) => name.toLowerCase())])
  const names = rawHeaders.filter((_, index) => index % 2 === 0)
  const fields = names.map((name, index) => {
    return `${name}: ${hidden.has(name.toLowerCase()) ? '[credentials]' : rawHeaders[2 * index + 1]}`
  })
  send(response, { org, method, path, query, fields, content: { lengthBytes, sha256: hash.digest('hex') } })
}

/** Server-sent events (WHATWG HTML §9.2): the first at once, each further one after `intervalMs`. */
async function answerEvents({ response }: Exchange, org: string, count: number, intervalMs: number): Promise<void> {
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' })
  response.flushHeaders()
  for (let number = 1; number <= count; number += 1) {
    if (number > 1 && !(await pause(intervalMs, response))) return
    response.write(`id: ${number}\ndata: ${JSON.stringify({ org, number })}\n\n`)
  }
  response.end()
}

/** 251 is prime, so the pattern never lines up with a power of two: a lost or doubled block shows. */
const PATTERN = Buffer.from(Array.from({ length: 251 * 256 }, (_, index) => index % 251))

/** Byte n is n modulo 251, so that a client can check any range. */
async function answerBytes({ response }: Exchange, sizeBytes: number, isChunked: boolean): Promise<void> {
  const length = isChunked ? {} : { 'content-length': sizeBytes }
  response.writeHead(200, { 'content-type': 'application/octet-stream', ...length })
  await pipeline(Readable.from(patternOf(sizeBytes), { objectMode: false }), response)
}

function* patternOf(sizeBytes: number): Generator<Buffer> {
  for (let left = sizeBytes; left > 0; left -= PATTERN.length) {
    yield left >= PATTERN.length ? PATTERN : PATTERN.subarray(0, left)
  }
}

const webSockets = new WebSocketServer({ noServer: true, clientTracking: false })

/** Sends every WebSocket message back. `ws` refuses a bad handshake itself. */
function answerSocket({ request, response, upgradeHead }: Exchange): void {
  if (upgradeHead === undefined) {
    throw new Refusal(426, 'upgrade_required', 'Connect with WebSocket.', { upgrade: 'websocket' })
  }
  response.detachSocket(request.socket)
  webSockets.handleUpgrade(request, request.socket, upgradeHead, (webSocket) => {
    webSocket.on('error', () => undefined) // ws closes the connection itself
    webSocket.on('message', (content, isBinary) => {
      webSocket.pause() // a client that does not read is not read from
      webSocket.send(content, { binary: isBinary }, () => webSocket.resume())
    })
  })
}
