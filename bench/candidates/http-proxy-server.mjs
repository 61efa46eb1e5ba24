/**
 * http-proxy, or a package with its interface, in front of an origin, with keep-alive connections.
 *
 * node http-proxy-server.mjs PORT ORIGIN_URL CA_FILE [MODULE]
 */

import { readFileSync } from 'node:fs'
import { createServer, Agent as HttpAgent } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'

const [port, originUrl = '', caFile = '', file = 'http-proxy'] = process.argv.slice(2)
const module = await import(file)
const { createProxyServer } = module.default ?? module
const pool = { keepAlive: true, maxSockets: 256, maxFreeSockets: 256 }
const agent = originUrl.startsWith('https:')
  ? new HttpsAgent({ ...pool, ca: readFileSync(caFile) })
  : new HttpAgent(pool)

const proxy = createProxyServer({
  target: originUrl,
  agent,
  changeOrigin: true,
  headers: { authorization: 'Bearer a-token-of-usual-length' },
})
proxy.on('error', (/** @type {Error} */ _error, /** @type {unknown} */ _request, /** @type {any} */ response) => {
  if (response.writeHead !== undefined && !response.headersSent) response.writeHead(502)
  response.end()
})

// Node's default of 5 s would close connections that the other candidates keep.
const server = createServer({ keepAliveTimeout: 65_000 }, (request, response) => {
  delete request.headers['x-org-id']
  proxy.web(request, response)
})
server.on('upgrade', (request, socket, head) => proxy.ws(request, socket, head))
server.listen({ port: Number(port), host: '127.0.0.1', backlog: 4_096 })
