/**
 * A collector that takes all spans, and keeps none. It answers with the number of batches so far. It is a separate process.
 *
 * node collector.mjs PORT
 */

import { createServer } from 'node:http'

const [port = 0] = process.argv.slice(2).map(Number)
let batches = 0

createServer({ keepAliveTimeout: 65_000 }, (request, response) => {
  if (request.method === 'POST') batches += 1
  request.resume().on('end', () => {
    const content = String(batches)
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': content.length }).end(content)
  })
}).listen(port, '127.0.0.1')
