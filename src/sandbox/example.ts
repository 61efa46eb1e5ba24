/** What the sandbox offers under `/v2/example/`; every other path is answered with the echo, since the service's own are not known. */

import { answerEcho, answerUpload } from './example-echo.ts'
import { answerBytes, answerEvents } from './example-streams.ts'
import type { OrgExchange } from './exchange.ts'
import { pause } from './pause.ts'
import { refusal, send } from './reply.ts'
import { EchoConnection } from './websocket-echo.ts'
import { handshakeAnswer, handshakeProblem } from './websocket-handshake.ts'

const MAX_EVENTS = 1_000_000

export async function answerExample(exchange: OrgExchange): Promise<void> {
  const [, name, parameter] = /^\/v2\/example\/([a-z]+)(?:\/([^/]+))?$/.exec(exchange.path) ?? []
  const query = new URLSearchParams(exchange.query)
  switch (name) {
    case 'upload':
      return answerUpload(exchange)
    case 'events':
      return answerEvents(exchange, {
        count: numberOf(query, 'count', 5, MAX_EVENTS),
        intervalMs: numberOf(query, 'intervalMs', 1000),
      })
    case 'bytes':
      return answerBytes(exchange, {
        sizeBytes: numberOf(query, 'size', 1024),
        chunked: query.get('chunked') === '1',
      })
    case 'status':
      return answerStatus(exchange, Number(parameter))
    case 'slow':
      if (await pause(numberOf(query, 'ms', 1000), exchange.response)) return answerEcho(exchange)
      return
    case 'socket':
      return answerSocket(exchange)
    default:
      return answerEcho(exchange)
  }
}

async function answerStatus(exchange: OrgExchange, status: number): Promise<void> {
  const { response } = exchange
  if (!Number.isInteger(status) || status < 200 || status > 599) {
    return send(response, refusal(400, 'status_invalid', 'The path ends in a status from 200 to 599.'))
  }
  if (status !== 204 && status !== 304) return answerEcho(exchange, status)
  response.writeHead(status).end()
}

async function answerSocket({ request, response, upgradeHead }: OrgExchange): Promise<void> {
  const problem = handshakeProblem(request)
  if (problem !== undefined) return send(response, problem)
  const { socket } = request
  response.detachSocket(socket)
  socket.write(handshakeAnswer(request))
  new EchoConnection(socket).open(upgradeHead ?? Buffer.alloc(0))
}

/** A whole number of the query; the default where it is missing or no such number. */
function numberOf(query: URLSearchParams, name: string, fallback: number, greatest = Number.MAX_SAFE_INTEGER): number {
  const text = query.get(name)
  if (text === null || !/^\d+$/.test(text)) return fallback
  return Math.min(Number(text), greatest)
}
