/**
 * What Node's own parser, llhttp, makes of bytes: its server judges requests, its client responses, both strict. One
 * connection a case, over a stream in memory, and the case comes in one piece.
 */

import { createServer, type IncomingMessage, request, type Server } from 'node:http'
import type { Socket } from 'node:net'
import { Duplex } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'

/** A message as it was told. Texts are latin1. */
export interface Told {
  /** Method and target, or the status and the reason; then the minor version. */
  readonly start: string
  readonly rawFields: readonly string[]
  content: string
  isComplete: boolean
}

export interface Verdict {
  readonly messages: Told[]
  /** Why parsing ended. Undefined: it would go on. */
  refusal: string | undefined
}

/** Node's limit for heads of requests, and the one that its client is given here. */
const MAX_RESPONSE_HEAD_BYTES = 64 * 1024

/** A connection whose peer sends what is pushed, and reads nothing. */
class Wire extends Duplex {
  override _read(): void {}

  override _write(_chunk: unknown, _encoding: unknown, done: () => void): void {
    done()
  }

  override _writev(_chunks: unknown, done: () => void): void {
    done()
  }

  setTimeout(): this {
    return this
  }

  setNoDelay(): this {
    return this
  }

  setKeepAlive(): this {
    return this
  }

  ref(): this {
    return this
  }

  unref(): this {
    return this
  }
}

const verdicts = new WeakMap<object, Verdict>()
let server: Server | undefined

function requestJudge(): Server {
  const judge = createServer({ insecureHTTPParser: false, requireHostHeader: false })
  judge.maxHeadersCount = 0
  judge.removeAllListeners('listening')
  const begin = (message: IncomingMessage) => {
    const verdict = verdicts.get(message.socket)
    if (verdict === undefined) return
    follow(message, `${message.method} ${message.url} ${message.httpVersionMajor}.${message.httpVersionMinor}`, verdict)
  }
  judge.on('request', begin)
  judge.on('checkContinue', begin)
  judge.on('checkExpectation', begin)
  judge.on('connect', begin)
  judge.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    const verdict = verdicts.get(socket)
    if (verdict !== undefined) verdict.refusal ??= error.code ?? error.message
  })
  return judge
}

function follow(message: IncomingMessage, start: string, verdict: Verdict): Told {
  const told: Told = { start, rawFields: message.rawHeaders, content: '', isComplete: false }
  verdict.messages.push(told)
  message.on('data', (bytes: Buffer) => {
    told.content += bytes.toString('latin1')
  })
  message.on('end', () => {
    told.isComplete = message.complete
  })
  message.on('error', () => undefined)
  return told
}

/** Judges requests, all at once. */
export async function judgeRequests(cases: readonly Buffer[]): Promise<Verdict[]> {
  server ??= requestJudge()
  const wires: Wire[] = []
  const all = cases.map((bytes) => {
    const wire = new Wire()
    const verdict: Verdict = { messages: [], refusal: undefined }
    verdicts.set(wire, verdict)
    wires.push(wire)
    wire.on('error', () => undefined)
    server?.emit('connection', wire)
    wire.push(bytes)
    return verdict
  })
  for (let turn = 0; turn < 4; turn++) await nextTurn()
  for (const wire of wires) wire.destroy()
  await nextTurn()
  return all
}

export interface ResponseToJudge {
  readonly method: string
  readonly bytes: Buffer
  /** The connection ends behind the bytes. */
  readonly isEnded: boolean
}

/** Judges responses, all at once. */
export async function judgeResponses(cases: readonly ResponseToJudge[]): Promise<Verdict[]> {
  const wires: Wire[] = []
  const all = cases.map(({ method, bytes, isEnded }) => {
    const wire = new Wire()
    wires.push(wire)
    const verdict: Verdict = { messages: [], refusal: undefined }
    const sent = request({
      method,
      createConnection: () => wire as unknown as Socket,
      insecureHTTPParser: false,
      maxHeaderSize: MAX_RESPONSE_HEAD_BYTES,
    })
    sent.maxHeadersCount = 0
    const startOf = (message: IncomingMessage) =>
      `${message.statusCode} ${message.statusMessage} ${message.httpVersionMajor}.${message.httpVersionMinor}`
    sent.on('response', (message) => follow(message, startOf(message), verdict))
    sent.on('upgrade', (message, _socket, rest) => {
      const told = {
        start: startOf(message),
        rawFields: message.rawHeaders,
        content: rest.toString('latin1'),
        isComplete: true,
      }
      verdict.messages.push(told)
    })
    sent.on('error', (error: NodeJS.ErrnoException) => {
      verdict.refusal ??= error.code ?? error.message
    })
    sent.end()
    wire.push(bytes)
    if (isEnded) wire.push(null)
    return verdict
  })
  for (let turn = 0; turn < 4; turn++) await nextTurn()
  for (const wire of wires) wire.destroy()
  await nextTurn()
  return all
}
