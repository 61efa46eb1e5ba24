/** Free ports, for programs that need a port on their command line. */

import { once } from 'node:events'
import { createServer } from 'node:net'

/** The kernel may offer a port again that nobody has taken yet. @type {Set<number>} */
const given = new Set()

/** @returns {Promise<number>} a port of 127.0.0.1 that was free a moment ago, and never the same twice */
export async function freePort() {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  server.close()
  await once(server, 'close')
  if (address === null || typeof address === 'string') throw new Error('a TCP server without a port')
  if (given.has(address.port)) return freePort()
  given.add(address.port)
  return address.port
}
