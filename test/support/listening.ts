/** Any server of a test, mostly on a free port, which ends together with its connections. */

import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'

export interface Listening extends AsyncDisposable {
  readonly port: number
  /** Those that are open. */
  readonly sockets: ReadonlySet<Socket>
}

export async function listening(server: Server, host = '127.0.0.1', port = 0): Promise<Listening> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    sockets.add(socket.on('error', () => undefined).once('close', () => sockets.delete(socket)))
  })
  await once(server.listen(port, host), 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    sockets,
    [Symbol.asyncDispose]: async () => {
      const closed = once(server, 'close')
      server.close()
      for (const socket of sockets) socket.destroy()
      await closed
    },
  }
}

/** A port that was free a moment ago, below those that Linux gives to others who ask for any (from 32,768 on). */
export async function freePort(): Promise<number> {
  for (let left = 100; ; left--) {
    const port = randomInt(10_000, 32_768)
    try {
      await using _ = await listening(createServer(), '127.0.0.1', port)
      return port
    } catch (error) {
      if (left === 0) throw error
    }
  }
}
