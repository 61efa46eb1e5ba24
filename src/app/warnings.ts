/** What the parts say about bad states that last, in words that tell what to do. */

import { Warnings, whileGrowing } from '../admin/warnings.ts'
import type { TokenErrorCode } from '../errors.ts'
import type { Fleet } from '../fleet/fleet.ts'
import type { Listener } from '../listener/server.ts'
import type { Log } from './log.ts'
import type { ReloadState } from './reload.ts'
import type { TokenSide } from './tokens.ts'

interface Parts {
  readonly side: TokenSide
  readonly log: Log
  readonly listener: Listener
  readonly reloadState: () => ReloadState
  readonly fleet: Fleet | undefined
}

export function warningsOf({ side, log, listener, reloadState, fleet }: Parts): Warnings {
  const warnings = new Warnings()
  warnings.add('mints_paused', () => {
    const { all } = side.mintPause
    if (all === undefined) return undefined
    const text = `No Org gets a new token: ${all.hint ?? CAUSES[all.code]} Tokens that are held go on working. ${RESUME}`
    return { text, lastedMs: all.lastedMs, leftMs: all.leftMs }
  })
  warnings.add('orgs_paused', () => {
    const { all, single } = side.mintPause
    if (single === undefined || all !== undefined) return undefined
    const { orgs, code, leftMs, hint } = single
    if (code === 'app_credentials_rejected' && side.seemCredentialsRejected) return undefined // told as that
    const text = `No new token for ${named(orgs.toReversed())}: ${hint ?? CAUSES[code]} The log lines "mint failed" have the URL. ${RESUME}`
    return { text, leftMs: leftMs > 0 ? leftMs : undefined }
  })
  warnings.add('app_credentials_rejected', () =>
    side.seemCredentialsRejected
      ? { text: 'The token endpoint rejects the App credentials. Check appId, and the secret in appSecretFile.' }
      : undefined,
  )
  warnings.add('secret_refused', () => {
    const problem = side.secretProblem
    if (problem === undefined) return undefined
    return {
      text: `The secret file is not in use: ${problem}. The secret before it is used, until the service ends it.`,
    }
  })
  warnings.add('fresh_tokens_rejected', () => {
    const orgs = side.tokens.orgsWithRejectedTokens()
    if (orgs.length === 0) return undefined
    return {
      text: `The service accepts no token of ${named(orgs)}, not even a new one. Check that baseUrl leads to the service that the tokens are for, and what the Org may do there.`,
    }
  })
  warnings.add('rejection_status_learned', () => {
    const statuses = side.tokens.learnedStatuses
    if (statuses.length === 0) return undefined
    const listed = statuses.join(', ')
    return {
      text: `The service ends tokens with the status ${listed}, which the proxy has learned from trials. Add ${listed} to tokens.rejectedStatuses, so that a restart does not learn it anew.`,
    }
  })
  warnings.add('configuration_refused', () => {
    const { lastOutcome } = reloadState()
    if (lastOutcome !== 'refused' && lastOutcome !== 'failed') return undefined
    return {
      text: `The changed configuration ${lastOutcome === 'refused' ? 'was refused' : 'could not be applied'}, and the one before it is in use. The log has every problem, and so has "org-access-proxy check".`,
    }
  })
  warnings.add('fleet_store_lost', () => {
    if (fleet?.store.status.state !== 'lost') return undefined
    return {
      text: `The store of the fleet (fleet.store) cannot be used: ${fleet.store.status.reason}. Until it is back, this replica mints for itself.`,
    }
  })
  warnings.add('connections_refused', () => {
    const { refusing } = listener.limit
    if (refusing === undefined) return undefined
    const text = `Client connections are refused, or closed while idle, because ${listener.limit.most} are open. Find the clients that leave them open, or raise ${refusing.setting}.`
    return { text, lastedMs: Date.now() - refusing.since.getTime() }
  })
  warnings.add('tls_certificate', () => {
    if (listener.tls === undefined) return undefined
    const problem = reloadState().problems.find((line) => line.startsWith('listen.tls.'))
    if (problem !== undefined)
      return { text: `The changed certificate of the listener is not in use, but the one before it: ${problem}.` }
    const { from, to } = listener.tls.validity
    const leftMs = to - Date.now()
    if (leftMs > Math.min((to - from) / 10, WEEK_MS)) return undefined
    const ends = `${leftMs > 0 ? 'ends' : 'ended'} at ${new Date(to).toISOString()}`
    return {
      text: `The certificate of the listener ${ends}. Put a new one in listen.tls.certFile and listen.tls.keyFile.`,
    }
  })
  warnings.add(
    'log_lines_dropped',
    whileGrowing(
      () => log.droppedLines,
      (lines) =>
        `${lines} lines of the log were dropped, because stdout is blocked or its disk full. Find out why nobody reads, or set log.requests or log.sample to write less.`,
    ),
  )
  return warnings
}

const WEEK_MS = 7 * 24 * 3_600_000

const MAX_NAMED = 3

function named(orgs: readonly string[]): string {
  return orgs.slice(0, MAX_NAMED).join(', ') + (orgs.length > MAX_NAMED ? ` and ${orgs.length - MAX_NAMED} more` : '')
}

const RESUME = 'To try again at once: POST /tokens/resume.'

const CAUSES: Readonly<Record<TokenErrorCode, string>> = {
  org_access_refused: 'The token endpoint refuses the Orgs.',
  app_credentials_rejected: 'The token endpoint rejects the App credentials.',
  token_response_invalid: 'The token endpoint answers without a usable token.',
  token_endpoint_unavailable: 'The token endpoint fails, or cannot be reached.',
  token_endpoint_rate_limited: 'The token endpoint limits the rate of calls.',
  token_endpoint_timeout: 'The token endpoint does not answer in time.',
}
