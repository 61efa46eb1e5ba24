/** Passes the events of the parts on to the log and the metrics. */

import type { Logger } from 'pino'
import type { FleetMetrics, Metrics } from '../admin/metrics.ts'
import type { RecentErrors } from '../admin/recent-errors.ts'
import type { TokenError, TokenErrorCode } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import type { GatewayObserver } from '../http/request-record.ts'
import type { ConnectionLimitObserver } from '../listener/connection-limit.ts'
import type { HandshakeObserver } from '../listener/tls.ts'
import {
  type MintReason,
  OverBudget,
  type RejectionKind,
  type SecretReloadOutcome,
  type SettledMint,
  type TokenObserver,
} from '../token/token-source.ts'
import type { FleetPartObserver } from './fleet.ts'
import type { Log } from './log.ts'
import type { ReloadObserver } from './reload.ts'
import type { RulesObserver } from './rules.ts'

export function requestEvents(
  log: Log,
  metrics: Metrics,
  errors: RecentErrors,
): GatewayObserver & ConnectionLimitObserver & HandshakeObserver {
  return {
    requestEnded(record) {
      log.request(record)
      metrics.requests.requestEnded(record)
      if (record.code !== undefined || record.status >= 400) errors.requestEnded(record)
    },
    repeatSettled(outcome) {
      metrics.requests.repeatSettled(outcome)
    },
    /** Writes the stack without the message, which may quote a value of the request. */
    programFailed(error, requestId) {
      const stack =
        error instanceof Error ? (error.stack ?? '').split('\n').filter((line) => /^ {4}at /.test(line)) : []
      const name = error instanceof Error ? error.name : typeof error
      log.logger.error({ requestId, error: name, stack }, 'the proxy failed: report this line')
    },
    connectionsRefused(setting, most) {
      log.logger.warn({ setting, connections: most }, 'client connections refused: too many are open')
    },
    connectionsTaken(refused) {
      log.logger.info({ refused }, 'client connections taken again')
    },
    handshakesFailed(reason, failures) {
      log.logger.warn({ reason, failures }, 'TLS handshakes of clients failed')
    },
  }
}

/** Reloads of the configuration, and the key sets of callers. */
export function configEvents(logger: Logger, metrics: Metrics): ReloadObserver & RulesObserver {
  return {
    configReloaded(outcome) {
      metrics.reloads.add(outcome)
    },
    configApplied(changes, warnings) {
      const keysOf = (needsRestart: boolean) =>
        changes.filter((change) => change.needsRestart === needsRestart).map(({ key }) => key)
      const [taken, waiting] = [keysOf(false), keysOf(true)]
      if (taken.length > 0) logger.info({ changed: taken }, 'configuration applied')
      if (waiting.length > 0) logger.warn({ settings: waiting }, 'changed settings need a restart')
      for (const warning of warnings) logger.warn(warning)
    },
    configRefused(problems) {
      for (const problem of problems) logger.warn({ problem }, 'configuration refused: the old one stays in use')
    },
    configUnchanged() {
      logger.info('configuration unchanged')
    },
    configFailed(error) {
      const detail = error instanceof Error ? error.message : undefined
      logger.error({ detail }, 'configuration could not be applied: the old one stays in use')
    },
    keySetUnavailable(url, problem, isFormerInUse) {
      if (isFormerInUse) logger.warn({ url, problem }, 'key set of callers not usable: the last good one stays in use')
      else logger.warn({ url, problem }, 'key set of callers not usable: tokens that need it are refused')
    },
    keySetRecovered(url) {
      logger.info({ url }, 'key set of callers usable now')
    },
  }
}

const REFUSED_MINTS_MS = 5_000

/** Logs orgs by id and outcomes by code: no line can hold a token, a secret or a reply of the endpoint. */
export class TokenEvents implements TokenObserver {
  readonly #logger: Logger
  readonly #metrics: Metrics
  #refusedMints = { overBudget: 0, paused: 0 }
  #refusedMintsTimer: NodeJS.Timeout | undefined

  constructor(logger: Logger, metrics: Metrics) {
    this.#logger = logger
    this.#metrics = metrics
  }

  mintSettled(mint: SettledMint): void {
    const { org: orgId, requestId, url, reason, outcome, durationMs, error } = mint
    this.#metrics.mintSettled(mint)
    if (outcome === 'ok') return
    const fields = {
      orgId,
      requestId,
      url,
      reason,
      outcome,
      durationMs: Math.round(durationMs),
      detail: error?.message,
    }
    this.#logger.warn(fields, 'mint failed')
  }

  /** A flood can refuse thousands of mints in a second, so one line counts all refusals of five seconds. */
  mintRefused(_org: OrgId, _reason: MintReason, error: TokenError): void {
    if (error instanceof OverBudget) this.#refusedMints.overBudget += 1
    else this.#refusedMints.paused += 1
    this.#refusedMintsTimer ??= setTimeout(() => this.flush(), REFUSED_MINTS_MS).unref()
  }

  /** Writes the line for the refusals counted so far. */
  flush(): void {
    clearTimeout(this.#refusedMintsTimer)
    if (this.#refusedMintsTimer !== undefined) this.#logger.warn(this.#refusedMints, 'mints not sent')
    this.#refusedMintsTimer = undefined
    this.#refusedMints = { overBudget: 0, paused: 0 }
  }

  /** The orgs of `tokens.warm` have been tried. */
  warmed(orgs: number, failed: number): void {
    if (failed === 0) this.#logger.info({ orgs }, 'warm orgs minted')
    else this.#logger.warn({ orgs, failed }, 'some warm orgs have no token')
  }

  tokenRejected(orgId: OrgId, kind: RejectionKind): void {
    this.#metrics.rejections.add(kind)
    this.#logger.debug({ orgId, kind }, 'token rejected by the service')
  }

  statusLearned(status: number): void {
    this.#logger.warn({ status }, 'the service ends tokens with a status that tokens.rejectedStatuses does not name')
  }

  tokenEvicted(): void {
    this.#metrics.evictions++
  }

  orgRefused(orgId: OrgId, error: TokenError): void {
    this.#logger.debug({ orgId, tokenEndpointStatus: error.tokenEndpointStatus }, 'org refused by the token endpoint')
  }

  mintsPaused(code: TokenErrorCode, pauseMs: number): void {
    this.#logger.warn({ code, pauseMs: Math.round(pauseMs) }, 'mints paused')
  }

  mintsResumed(): void {
    this.#logger.info('mints resumed')
  }

  secretReloaded(outcome: Exclude<SecretReloadOutcome, 'unusable'>, file: string | undefined): void {
    this.#metrics.secretReloads.add(outcome)
    switch (outcome) {
      case 'loaded':
        this.#logger.info({ file }, 'new secret loaded: the next mint uses it')
        return
      case 'accepted':
        this.#logger.info({ file }, 'new secret accepted by the token endpoint')
        return
      case 'rejected':
        this.#logger.warn(
          { file },
          'new secret rejected by the token endpoint: correct the file; the secret before it is used',
        )
    }
  }

  secretWarning(problem: string): void {
    this.#logger.warn({ problem }, 'changed secret looks odd')
  }

  secretUnusable(file: string, problem: string): void {
    this.#metrics.secretReloads.add('unusable')
    this.#logger.warn({ file, problem }, 'secret file not usable: the old secret stays in use')
  }
}

/** The log and the metrics of the fleet. */
export function fleetEvents(logger: Logger, metrics: FleetMetrics): FleetPartObserver {
  return {
    storeAsked(...asked) {
      metrics.storeAsked(...asked)
    },
    storeLost(reason) {
      metrics.isAvailable = false
      logger.warn({ reason }, 'fleet store lost: this replica mints for itself')
    },
    storeBack() {
      metrics.isAvailable = true
      logger.info('fleet store available')
    },
    passwordRejected(reason) {
      logger.warn({ reason }, 'fleet store rejects the password: no new connection is possible')
    },
    valueUnusable() {
      metrics.valueUnusable()
    },
    passwordUnusable(file, problem) {
      logger.warn({ file, problem }, 'fleet password file not usable: the old password stays in use')
    },
  }
}
