/** Counts of mints (calls of the token endpoint), of tokens and of secret reloads. No label holds an org. */

import {
  MINT_REASONS,
  type MintReason,
  SECRET_RELOAD_OUTCOMES,
  type SecretReloadOutcome,
  type SettledMint,
  type TokenObserver,
} from '../token/token-source.ts'
import { Histogram, keysOf, LabelledCounter, type MetricFamily, PairCounter, single } from './counts.ts'
import { BOUNDS_MS } from './request-metrics.ts'

type MintOutcome = SettledMint['outcome']

export interface TokenTotals {
  readonly mints: number
  /** The token endpoint refused the org. */
  readonly refusedMints: number
  /** Every other failure. */
  readonly failedMints: number
  readonly rejections: number
  readonly evictions: number
}

const NO_OUTCOMES: Readonly<Record<MintOutcome, 0>> = {
  ok: 0,
  org_access_refused: 0,
  app_credentials_rejected: 0,
  token_response_invalid: 0,
  token_endpoint_unavailable: 0,
  token_endpoint_rate_limited: 0,
  token_endpoint_timeout: 0,
}

export class TokenMetrics implements TokenObserver {
  readonly #mints = new PairCounter<MintReason, MintOutcome>(
    { name: 'oap_mints_total', help: 'Calls of the token endpoint, by reason and outcome.' },
    ['reason', 'outcome'],
  )
  readonly #durations = new Histogram(
    { name: 'oap_mint_duration_seconds', help: 'Duration of one call of the token endpoint.' },
    BOUNDS_MS,
  )
  readonly #secretReloads = new LabelledCounter<SecretReloadOutcome>(
    { name: 'oap_secret_reloads_total', help: 'Changes of the secret file, by outcome.' },
    'outcome',
    SECRET_RELOAD_OUTCOMES,
  )
  /** The token endpoint has accepted the App credentials since the start. */
  hasMinted = false
  #settledMints = 0
  #refusedMints = 0
  #failedMints = 0
  #rejections = 0
  #evictions = 0

  constructor() {
    for (const reason of MINT_REASONS) this.#mints.open(reason, keysOf(NO_OUTCOMES))
  }

  mintSettled({ reason, outcome, durationMs }: SettledMint): void {
    this.#mints.add(reason, outcome)
    this.#durations.record(durationMs)
    this.#settledMints++
    if (outcome === 'ok') this.hasMinted = true
    if (outcome === 'org_access_refused') this.#refusedMints++
    else if (outcome !== 'ok') this.#failedMints++
  }

  tokenRejected(): void {
    this.#rejections++
  }

  tokenEvicted(): void {
    this.#evictions++
  }

  secretReloaded(outcome: SecretReloadOutcome): void {
    this.#secretReloads.add(outcome)
  }

  totals(): TokenTotals {
    return {
      mints: this.#settledMints,
      refusedMints: this.#refusedMints,
      failedMints: this.#failedMints,
      rejections: this.#rejections,
      evictions: this.#evictions,
    }
  }

  families(): MetricFamily[] {
    return [
      this.#mints.family(),
      this.#durations.family(),
      single('oap_token_rejections_total', 'counter', 'Tokens that the service rejected.', this.#rejections),
      single(
        'oap_token_evictions_total',
        'counter',
        'Tokens evicted from a full cache; raise tokens.maxOrgs if it grows.',
        this.#evictions,
      ),
      this.#secretReloads.family(),
    ]
  }
}
