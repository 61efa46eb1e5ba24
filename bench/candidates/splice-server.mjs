/**
 * Joins each client's connection with a connection of its own to the origin, and changes nothing. With PARSERS, a module of this
 * program's parsers, it also parses what goes through. What a proxy written in Node costs more is the price of its work.
 *
 * node splice-server.mjs PORT ORIGIN_URL CA_FILE [PARSERS]
 */

import { readFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { connect as connectTls } from 'node:tls'

const [port, originUrl = '', caFile = '', parsersFile] = process.argv.slice(2)
const { hostname: host, port: originPort, protocol } = new URL(originUrl)
const origin = { host, port: Number(originPort), noDelay: true }
const tls = protocol === 'https:' ? { ...origin, ca: readFileSync(caFile) } : undefined
/** @type {any} */
const parsers = parsersFile === undefined ? undefined : await import(parsersFile)

const nothing = () => undefined

/** Returns what parses requests, and what parses their responses. */
function newParsers() {
  if (parsers === undefined) return { request: nothing, response: nothing }
  const content = { messageContent: nothing, messageEnd: nothing }
  const responses = new parsers.ResponseParser({ ...content, responseHead: nothing })
  const requests = new parsers.RequestParser(
    {
      ...content,
      requestHead: (/** @type {{ method: string }} */ { method }) => responses.expect(method === 'HEAD'),
    },
    16 * 1024,
  )
  return { request: whole(requests), response: whole(responses) }
}

/** A parser stops behind each message. @param {any} parser */
function whole(parser) {
  return (/** @type {Buffer} */ bytes) => {
    for (let at = 0; at < bytes.length; ) at = parser.read(bytes, at, bytes.length)
  }
}

/**
 * @param {import('node:net').Socket} from
 * @param {import('node:net').Socket} to
 * @param {(bytes: Buffer) => void} parse
 */
function join(from, to, parse) {
  from.on('data', (bytes) => {
    parse(bytes)
    if (!to.write(bytes)) from.pause()
  })
  to.on('drain', () => from.resume())
  from.on('end', () => to.end())
  from.on('error', () => to.destroy())
  from.on('close', () => to.destroy())
}

const server = createServer({ noDelay: true, allowHalfOpen: true }, (client) => {
  const service = tls === undefined ? connect(origin) : connectTls(tls)
  const { request, response } = newParsers()
  join(client, service, request)
  join(service, client, response)
})
server.listen({ port: Number(port), host: '127.0.0.1', backlog: 4_096 })
