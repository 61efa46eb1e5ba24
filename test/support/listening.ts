/** Any server of a test, mostly on a free port, which ends together with its connections. */

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

/** A port that was free a moment ago. */
export async function freePort(): Promise<number> {
  await using server = await listening(createServer())
  return server.port
}
