/** Passes the events of all parts on to the log, the metrics and the traces. */

import type { Metrics } from '../admin/metrics.ts'
import type { KeySetsObserver } from '../callers/key-sets.ts'
import { causeForOperator, type ErrorCode, remedyOf } from '../errors.ts'
import type { StoreObserver } from '../fleet/redis-store.ts'
import type { GatewayObserver } from '../gateway/request-record.ts'
import type { ListenerObserver } from '../listener/server.ts'
import type { SecretState } from '../token/app-credentials.ts'
import type { SettledMint, TokenObserver } from '../token/token-source.ts'
import type { Traces } from '../traces/traces.ts'
import type { Log } from './log.ts'
import type { Reload } from './reload.ts'

type Observers = GatewayObserver &
  ListenerObserver &
  Omit<KeySetsObserver, 'keySetChanged'> &
  Required<TokenObserver> &
  StoreObserver

export type Events = ReturnType<typeof eventsOf>

/** Orgs are logged by id and outcomes by code: no line can hold a token, a secret or a reply of the endpoint. */
export function eventsOf(log: Log, metrics: Metrics, traces?: Traces) {
  const { logger } = log
  const { tokens, store, minter } = metrics
  const mintFailed = ({ org: orgId, requestId, url, reason, error, durationMs }: SettledMint) => {
    if (error === undefined) return
    const outcome = error.code
    const detail = causeForOperator(error)
    logger.warn({ orgId, requestId, url, reason, outcome, durationMs: Math.round(durationMs), detail }, 'mint failed')
  }
  const observers: Observers = {
    requestEnded(record) {
      const { orgId, rejection: outcome } = record
      log.request(record)
      metrics.requestEnded(record)
      if (outcome !== undefined) logger.debug({ orgId, outcome }, 'token rejected by the service')
    },
    tunnelEnded: (record, end) => log.tunnel(record, end),
    /** Writes the stack without the message, which may quote a value of the request. */
    programFailed(error: unknown, requestId?: string) {
      const { name, stack = '' } = error instanceof Error ? error : { name: typeof error }
      const calls = stack.split('\n').filter((line) => /^ {4}at /.test(line))
      logger.error({ requestId, error: name, stack: calls }, 'the proxy failed: report this line')
    },
    connectionsRefused({ most, setting }) {
      logger.warn({ connections: most, limit: setting }, 'client connections refused: too many are open')
    },
    handshakeFailed({ reason, code, address, isFirst }) {
      metrics.requests.handshakes.add(reason)
      // Anyone on the network can make handshakes fail.
      if (isFirst) logger.warn({ reason, code, address }, 'TLS handshake of a client failed')
    },

    keySetUnavailable(url, problem, isFormerInUse) {
      if (isFormerInUse) logger.warn({ url, problem }, 'key set of callers not usable: the last good one stays in use')
      else logger.warn({ url, problem }, 'key set of callers not usable: requests with tokens that need it get 503')
    },
    keySetRecovered: (url) => logger.info({ url }, 'key set of callers usable now'),

    mintSettled(mint) {
      metrics.mintSettled(mint)
      traces?.mintSettled(mint)
      mintFailed(mint)
    },
    statusLearned: (status, orgId) =>
      logger.warn(
        { orgId, status },
        'the service ends tokens with a status that tokens.rejectedStatuses does not name',
      ),
    tokenEvicted() {
      metrics.evictions++
    },

    storeAsked(operation, outcome, durationMs) {
      store?.requests.add(operation, outcome)
      store?.durations.record(durationMs)
    },
    storeLost: (reason) => logger.warn({ reason }, 'fleet store lost: this replica mints for itself'),
    storeBack: () => logger.info('fleet store available'),
  }
  return {
    ...observers,

    configReloaded(reload: Reload) {
      tokens.reloads.add(reload.outcome)
      switch (reload.outcome) {
        case 'applied':
          if (reload.taken.length > 0) logger.info({ changed: reload.taken }, 'configuration applied')
          if (reload.waiting.length > 0) logger.warn({ settings: reload.waiting }, 'changed settings need a restart')
          for (const warning of reload.warnings) logger.warn(warning)
          return
        case 'refused':
          for (const problem of reload.problems) {
            logger.warn({ problem }, 'configuration refused: the old one stays in use')
          }
          return
        case 'unchanged':
          logger.info('configuration unchanged')
      }
    },

    /** The orgs of `tokens.warm` have been tried. */
    warmed(orgs: number, failed: number) {
      if (failed === 0) logger.info({ orgs }, 'warm orgs minted')
      else logger.warn({ orgs, failed }, 'some warm orgs have no token')
    },
    secretReloaded(outcome: SecretState, file: string | undefined) {
      tokens.secretReloads.add(outcome)
      if (outcome === 'loaded') logger.info({ file }, 'new secret loaded: the next mint uses it')
      else if (outcome === 'accepted') logger.info({ file }, 'new secret accepted by the token endpoint')
      else
        logger.warn(
          { file },
          'new secret rejected by the token endpoint: correct the file; the secret before it is used',
        )
    },
    secretUnusable(file: string, problem: string) {
      tokens.secretReloads.add('unusable')
      logger.warn({ file, problem }, 'secret file not usable: the old secret stays in use')
    },

    /** A minter has answered a sidecar. */
    tokenAsked: (outcome: string) => minter?.requests.add(outcome),
    /** A sidecar has asked its minter. */
    minterAsked(mint: SettledMint) {
      minter?.requests.add(mint.error?.code ?? 'ok')
      traces?.mintSettled(mint)
      mintFailed(mint)
    },
    /** It gives no usable answer. */
    minterLost: (reason: string) => logger.warn({ reason }, 'minter lost: tokens that are held go on working'),
    /** It refuses this sidecar, whatever the org. */
    minterRefused: (code: ErrorCode) =>
      logger.warn({ code, remedy: remedyOf(code, true).detail }, 'minter refuses this sidecar'),
    minterBack: () => logger.info('minter available'),
  }
}
