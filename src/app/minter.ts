/** Both roles of a minter, from the configuration: the listener for sidecars, and a sidecar's source of tokens. */

import { isRemote } from '../config/relations.ts'
import type { Config } from '../config/schema.ts'
import { Reception } from '../gateway/reception.ts'
import type { RequestRecord } from '../gateway/request-record.ts'
import { Listener } from '../listener/server.ts'
import { admitSidecarRequest } from '../minter/admission.ts'
import { MinterSource } from '../minter/minter-source.ts'
import { SidecarRequest } from '../minter/sidecar-request.ts'
import { TokenGiver } from '../minter/token-giver.ts'
import { call } from '../origin/call.ts'
import type { ConnectionPool } from '../origin/connection-pool.ts'
import type { Orgs } from '../token/orgs.ts'
import { USER_AGENT } from '../version.ts'
import { type Entrance, entranceOf, namingHolders, otherDescriptors, ownDescriptors, requestIds } from './entrance.ts'
import type { Events } from './events.ts'
import type { LiveRules } from './rules.ts'

type MinterUrl = NonNullable<Config['minter']['url']>

/** The part of `listen.maxInFlight` that one caller may have at the minter, so that it cannot keep the others out. */
const CALLER_SHARE = 1 / 4

/** The entrance for sidecars; undefined unless `minter.address` is set. */
export function openMinter(
  config: Config,
  side: { readonly orgs: Orgs },
  rules: LiveRules,
  events: Events,
): Entrance | undefined {
  const { listen, minter } = config
  if (minter.address === undefined) return undefined
  const allowRemote = isRemote(minter.address)
  const newRequestId = requestIds()
  const observer = namingHolders(events, () => reception)
  const desk = {
    ...listen,
    newRequestId,
    giver: new TokenGiver(side.orgs),
    observer,
  }
  const reception = new Reception({
    allowRemote,
    maxInFlight: listen.maxInFlight,
    callerShare: CALLER_SHARE,
    // Any name will do: a page that rebinds its own has no credential, and browsers mark each POST with Origin.
    rules: () => rules.onSocket,
    admit: admitSidecarRequest,
    serve: (admitted, client, startedAt, onEnd) => new SidecarRequest(desk, client, admitted, startedAt, onEnd),
    refusals: {
      newRequestId,
      tellsTime: false,
      observer: { ...observer, requestEnded: (record) => tellRefused(record, observer) },
    },
  })
  const listener = new Listener(
    {
      ...listen,
      address: minter.address,
      allowRemote,
      tls: minter.tls,
      otherDescriptors: otherDescriptors(config),
      descriptors: ownDescriptors(config),
      tunnels: () => 0,
      observer: events,
    },
    reception,
  )
  return entranceOf(listener, reception, rules, ({ callers, minter: { tls } }) => ({
    socketPaths: callers.map(({ minterSocket }) => minterSocket),
    tls,
  }))
}

function tellRefused(record: RequestRecord, events: Events): void {
  events.requestEnded(record)
  if (record.code !== undefined) events.tokenAsked(record.code)
}

/**
 * The longest call, as a share of `tokens.mintTimeout`: so that a request gets the error that names the minter. A minter that waits
 * for the endpoint answers sooner (`WAIT_SHARE` in token-giver.ts). Its mint goes on, and its token serves the next call.
 */
const LONGEST_CALL = 0.95

/** `settings` are those of the moment: a reload may change the credential. */
export function openMinterSource(
  url: MinterUrl,
  config: Config,
  pool: ConnectionPool,
  settings: () => Config['minter'],
  observer: Pick<Events, 'minterAsked'>,
): MinterSource {
  const own = ['host', url.baseUrl.host, 'user-agent', USER_AGENT]
  const source: MinterSource = new MinterSource({
    minter: url.text,
    credential() {
      const { keyFile, jwtFile } = settings()
      const key = (keyFile ?? jwtFile)?.content
      return key === undefined ? [] : ['x-proxy-key', key.reveal()]
    },
    call(target, fields, content, withinMs = Number.POSITIVE_INFINITY) {
      // What is left of a minter that went away would take all the time of a request.
      const needsNewConnection = source.problem !== undefined
      const sent = { method: 'POST', target, fields: [...own, ...fields], content, needsNewConnection }
      return call(pool, sent, Math.min(config.tokens.mintTimeoutMs * LONGEST_CALL, withinMs))
    },
    observer,
  })
  return source
}
