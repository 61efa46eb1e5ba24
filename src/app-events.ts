/** What the parts tell, passed on to those who listen: the log, the metrics, the readiness check. */

import type { Logger } from 'pino'
import type { Metrics } from './admin/metrics.ts'
import type { RecentErrors } from './admin/recent-errors.ts'
import type { TokenError, TokenErrorCode } from './errors.ts'
import type { GatewayObserver, ReplayOutcome, RequestRecord } from './gateway/request-record.ts'
import type { OrgId } from './http/org-id.ts'
import type { Log } from './log.ts'
import type { SecretReloadOutcome, SettledMint, TokenObserver } from './token/token-observer.ts'

export class RequestEvents implements GatewayObserver {
  readonly #log: Log
  readonly #metrics: Metrics
  readonly #errors: RecentErrors

  constructor(log: Log, metrics: Metrics, errors: RecentErrors) {
    this.#log = log
    this.#metrics = metrics
    this.#errors = errors
  }

  requestEnded(record: RequestRecord): void {
    this.#log.request(record)
    this.#metrics.requests.requestEnded(record)
    if (record.code !== undefined) this.#errors.requestEnded(record)
  }

  replaySettled(outcome: ReplayOutcome): void {
    this.#metrics.requests.replaySettled(outcome)
  }
}

/** Orgs by their ids, outcomes by their codes: no line here can hold a token, a secret or what the endpoint said. */
export class TokenEvents implements TokenObserver {
  readonly #logger: Logger
  readonly #metrics: Metrics
  /** True from a 401 of the token endpoint until it has accepted the App again. */
  areCredentialsRejected = false

  constructor(logger: Logger, metrics: Metrics) {
    this.#logger = logger
    this.#metrics = metrics
  }

  mintSettled(mint: SettledMint): void {
    const { org: orgId, reason, outcome, durationMs, error } = mint
    this.#metrics.tokens.mintSettled(mint)
    // A proof tells about the candidate, not about the secret in use.
    if (reason !== 'rotation') this.areCredentialsRejected = rejects(outcome, this.areCredentialsRejected)
    if (outcome === 'ok') return
    const fields = { orgId, reason, outcome, durationMs: Math.round(durationMs), detail: error?.message }
    this.#logger.warn(fields, 'mint failed')
  }

  tokenRejected(orgId: OrgId): void {
    this.#metrics.tokens.tokenRejected()
    this.#logger.debug({ orgId }, 'token rejected by the service')
  }

  tokenEvicted(): void {
    this.#metrics.tokens.tokenEvicted()
  }

  orgRefused(orgId: OrgId, error: TokenError): void {
    this.#logger.debug({ orgId, tokenEndpointStatus: error.tokenEndpointStatus }, 'org refused by the token endpoint')
  }

  estimateChanged(estimateMs: number): void {
    this.#logger.info({ estimateMs: Math.round(estimateMs) }, 'token lifetime estimate changed')
  }

  mintsPaused(code: TokenErrorCode, pauseMs: number): void {
    this.#logger.warn({ code, pauseMs: Math.round(pauseMs) }, 'mints paused')
  }

  mintsResumed(): void {
    this.#logger.info('mints resumed')
  }

  secretReloaded(outcome: SecretReloadOutcome): void {
    this.#metrics.tokens.secretReloaded(outcome)
    if (outcome === 'proved' || outcome === 'unproved') {
      this.areCredentialsRejected = false
      this.#logger.info({ outcome }, 'secret replaced')
    } else this.#logger.warn({ outcome }, 'changed secret not taken over')
  }

  secretUnusable(problem: string): void {
    this.#metrics.tokens.secretReloaded('unusable')
    this.#logger.warn({ problem }, 'secret file not usable: the old secret stays in use')
  }
}

/** Whether the credentials count as rejected after this outcome. A refusal of one org is no judgement of the App. */
function rejects(outcome: SettledMint['outcome'], before: boolean): boolean {
  if (outcome === 'app_credentials_rejected') return true
  return outcome === 'ok' || outcome === 'org_access_refused' ? false : before
}
