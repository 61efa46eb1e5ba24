/** Both roles of a minter, from the configuration: the listener for sidecars, and a sidecar's source of tokens. */

import type { SecureContext } from 'node:tls'
import { isRemote } from '../config/relations.ts'
import type { Config } from '../config/schema.ts'
import { admitTokenRequest } from '../gateway/admission.ts'
import { Reception } from '../gateway/reception.ts'
import { Listener } from '../listener/server.ts'
import type { TlsMaterial } from '../listener/tls.ts'
import { MinterSource } from '../minter/minter-source.ts'
import { TokenGiver } from '../minter/token-giver.ts'
import { TokenRequest } from '../minter/token-request.ts'
import { call } from '../origin/call.ts'
import { Origin } from '../origin/origin.ts'
import type { TokenCache } from '../token/token-cache.ts'
import { contextTrusting } from '../trusted-certificates.ts'
import { readVersion } from '../version.ts'
import type { Events } from './events.ts'
import type { LiveConnections } from './origin.ts'
import type { LiveRules } from './rules.ts'

type MinterUrl = NonNullable<Config['minter']['url']>

/** Trusts the CA of the minter and no other, if it is named: no public one speaks for a private name. */
export function minterContext({ caFile, certFile, certKeyFile }: Config['minter']): SecureContext | undefined {
  const shown = certFile && certKeyFile && { cert: certFile.content, key: certKeyFile.content.reveal() }
  return contextTrusting(caFile?.content, shown, 'no others')
}

/** The part of `listen.maxInFlight` that one caller may have at the minter, so that it cannot keep the others out. */
const CALLER_SHARE = 1 / 4

export interface MinterParts {
  readonly reception: Pick<Reception<never>, 'requestsInFlight'>
  readonly listener: Listener
}

/** The listener for sidecars; undefined unless `minter.address` is set. */
export function openMinter(
  { listen, minter }: Config,
  side: { readonly tokens: TokenCache },
  rules: LiveRules,
  newRequestId: () => string,
  otherDescriptors: number,
  events: Events,
): MinterParts | undefined {
  if (minter.address === undefined) return undefined
  const allowRemote = isRemote(minter.address)
  const desk = {
    ...listen,
    newRequestId,
    giver: new TokenGiver(side.tokens),
    observer: events,
  }
  const reception = new Reception({
    allowRemote,
    maxInFlight: listen.maxInFlight,
    callerShare: CALLER_SHARE,
    // Any name will do: a page that rebinds its own has no credential, and browsers mark each POST with Origin.
    rules: () => rules.onSocket,
    admit: admitTokenRequest,
    begin: (client, head, onEnd) => new TokenRequest(desk, client, head, onEnd),
  })
  const listener = new Listener(
    {
      ...listen,
      address: minter.address,
      allowRemote,
      tls: tlsMaterial(minter.tls),
      otherDescriptors,
      tunnels: () => 0,
      observer: events,
    },
    reception,
  )
  return { reception, listener }
}

export function tlsMaterial({ certFile, keyFile, clientCaFile }: Config['listen']['tls']): TlsMaterial | undefined {
  if (certFile === undefined || keyFile === undefined) return undefined
  return { certificates: certFile.content, key: keyFile.content, clientCaCertificates: clientCaFile?.content }
}

/** A pool of connections to the minter. */
export function openMinterOrigin(
  url: MinterUrl,
  { origin, tokens }: Pick<Config, 'origin' | 'tokens'>,
  live: LiveConnections,
): Origin {
  return new Origin({
    baseUrl: url.baseUrl,
    socketPath: url.socketPath,
    connections: tokens.mintConcurrency,
    connectTimeoutMs: origin.connectTimeoutMs,
    maxConnectionAgeMs: origin.maxConnectionAgeMs,
    lookup: live.lookup,
    get secureContext() {
      return live.secureContext
    },
  })
}

/**
 * The longest call, as a share of `tokens.mintTimeout`: so that a request gets the error that names the minter. A minter that waits
 * for the endpoint answers sooner (`WAIT_SHARE` in token-giver.ts). Its mint goes on, and its token serves the next call.
 */
const LONGEST_CALL = 0.92

/** A reload may change `live`. */
export function openMinterSource(
  url: MinterUrl,
  config: Config,
  origin: Origin,
  live: { readonly config: Config },
  observer: Pick<Events, 'minterAsked'>,
): MinterSource {
  const own = ['host', url.baseUrl.host, 'user-agent', `org-access-proxy/${readVersion()}`]
  const source: MinterSource = new MinterSource({
    minter: url.text,
    credential() {
      const { keyFile, jwtFile } = live.config.minter
      const key = (keyFile ?? jwtFile)?.content
      return key === undefined ? [] : ['x-proxy-key', key.reveal()]
    },
    call(target, fields, content, withinMs = Number.POSITIVE_INFINITY) {
      // What is left of a minter that went away would take all the time of a request.
      const needsNewConnection = source.problem !== undefined
      const sent = { method: 'POST', target, fields: [...own, ...fields], content, needsNewConnection }
      return call(
        origin,
        { ...sent, readsErrors: true },
        Math.min(config.tokens.mintTimeoutMs * LONGEST_CALL, withinMs),
      )
    },
    observer,
  })
  return source
}
