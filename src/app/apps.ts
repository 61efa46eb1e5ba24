/** The entrance for apps, and the gateway behind it. */

import type { Config } from '../config/schema.ts'
import { admit } from '../gateway/admission.ts'
import { RepeatMemory } from '../gateway/client-content.ts'
import { Exchange, type Gateway } from '../gateway/exchange.ts'
import { Reception } from '../gateway/reception.ts'
import { SecretFields } from '../gateway/secret-fields.ts'
import type { Tunnels } from '../gateway/tunnel.ts'
import type { InheritedSockets } from '../listener/bind.ts'
import { Listener } from '../listener/server.ts'
import type { ConnectionPool } from '../origin/connection-pool.ts'
import type { Traces } from '../traces/traces.ts'
import { entranceOf, namingHolders, otherDescriptors, ownDescriptors, requestIds } from './entrance.ts'
import type { Events } from './events.ts'
import type { LiveRules } from './rules.ts'
import type { TokenSide } from './tokens.ts'

interface PartsBehind {
  readonly side: TokenSide
  readonly pool: ConnectionPool
  readonly rules: LiveRules
  readonly events: Events
  readonly traces: Traces | undefined
  readonly tunnels: Tunnels
}

export function openApps(
  config: Config,
  { side, pool, rules, events, traces, tunnels }: PartsBehind,
  sockets: InheritedSockets | undefined,
) {
  const { listen, baseUrl, replay, tokens } = config
  const observer = namingHolders(events, () => reception)
  const secretFields = new SecretFields(tokens.header)
  const repeatMemory = new RepeatMemory(replay.maxBodyBytes)
  const gateway: Gateway = {
    credentials: side.credentials,
    secretFields,
    pool,
    baseUrl,
    orgs: side.orgs,
    observer,
    tracing: traces,
    tellsTime: listen.serverTiming,
    repeatMemory,
    tunnels,
    idleTimeoutMs: listen.idleTimeoutMs,
  }
  const newRequestId = requestIds()
  const reception = new Reception({
    ...listen,
    rules: (isOnSocket) => (isOnSocket ? rules.onSocket : rules.current),
    admit: (head, current, client, verified) => admit(head, current, newRequestId, client, verified),
    serve: (admitted, client, startedAt, onEnd) => new Exchange(gateway, client, admitted, startedAt, onEnd),
    refusals: { newRequestId, tracing: traces, tellsTime: listen.serverTiming, observer },
  })
  const listener = new Listener(
    {
      ...listen,
      inheritedSockets: sockets?.proxy,
      otherDescriptors: otherDescriptors(config),
      descriptors: ownDescriptors(config),
      tunnels: () => tunnels.size,
      observer: events,
    },
    reception,
  )
  const entrance = entranceOf(listener, reception, rules, ({ callers, listen: { tls } }) => ({
    socketPaths: callers.map(({ socket }) => socket),
    tls,
  }))
  const use = (latest: Config) => {
    secretFields.useOthers(latest.origin.secretHeaders)
    entrance.use(latest)
  }
  const status = () => ({ ...entrance.status(), keptBytes: repeatMemory.heldBytes })
  return { ...entrance, use, status }
}
