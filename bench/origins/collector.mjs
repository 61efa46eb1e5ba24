/**
 * A collector that takes all spans, and keeps none. It is a separate process.
 *
 * node collector.mjs PORT
 */

import { createServer } from 'node:http'

const [port = 0] = process.argv.slice(2).map(Number)

createServer({ keepAliveTimeout: 65_000 }, (request, response) => {
  request.resume().on('end', () => {
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': 2 }).end('{}')
  })
}).listen(port, '127.0.0.1')
