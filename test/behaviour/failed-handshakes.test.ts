import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { eventually } from '../support/changes.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import { RawClient } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

const sockets = () => process.getActiveResourcesInfo().filter((kind) => kind === 'TCPSocketWrap').length

test.each(['ends its side', 'leaves', 'stays'] as const)(
  'a handshake that the service answers with something else leaves no connection behind: its client %s',
  async (then) => {
    await using service = await startService({
      script: () => ({ status: 404, content: 'no such thing', closes: true }),
    })
    await using proxy = await startProxy(service)
    const before = sockets()
    await using client = await RawClient.connect(proxy.port)
    client.send(get('/v2/socket', 'acme', ...HANDSHAKE))
    if (then === 'ends its side') client.socket.end()
    expect((await client.response()).status).toBe(404)
    if (then === 'leaves') client.socket.destroy()
    await eventually(() => sockets() <= before + (then === 'stays' ? 1 : 0) || undefined, 'no socket', 5_000)
  },
)
