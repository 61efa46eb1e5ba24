/** The bad states of mints and tokens, in words that tell what to do. */

import { causeForOperator, type Failure } from '../errors.ts'
import type { OrgId } from '../org-id.ts'
import { type Finding, named, type PartWarnings } from '../part.ts'
import type { Mints } from './mints.ts'
import type { Orgs } from './orgs.ts'

type Troubled = Orgs['troubled']

/** `call` is that of the endpoint, as text. Undefined for a sidecar. */
export function mintWarnings(mints: Mints, troubled: Troubled, call: string | undefined): PartWarnings {
  const { pace, isAppUnknown, isAppRevoked } = mints
  const areCredentialsRejected = isAppUnknown || isAppRevoked
  const told = troubled.filter(({ error }) => error.trouble !== 'credentials' || !areCredentialsRejected)
  const rejection = troubled.find(({ error }) => error.trouble === 'credentials')
  return {
    orgs_paused: told.length === 0 ? undefined : paused(told, call),
    mint_pace_reduced:
      pace === 1
        ? undefined
        : `The token endpoint limits the rate of calls, so the proxy makes ${Math.round(pace * 100)} % of the calls that tokens.mintRate allows. If this comes again, set tokens.mintRate to what the service allows.`,
    app_credentials_rejected: areCredentialsRejected ? rejected(call, rejection?.error.note, isAppRevoked) : undefined,
  }
}

const MAX_CAUSES = 3

function paused(told: Troubled, call: string | undefined): Finding {
  const groups = groupedByCause(told)
  const causes = [...groups].slice(0, MAX_CAUSES).map(([cause, { orgs, since }]) => {
    const place = call === undefined || cause.includes(call) ? '' : ` The call is ${call}.`
    const from = groups.size > 1 ? ` since ${new Date(since).toISOString()}` : '' // of one cause, the warning tells it
    return `No new token for ${named(orgs)}${from}: ${cause}${place}`
  })
  const others = [...groups.values()].slice(MAX_CAUSES).reduce((sum, { orgs }) => sum + orgs.length, 0)
  if (others > 0) causes.push(`No new token for ${others} more, for other causes.`)
  const leftMs = told.reduce((longest, each) => Math.max(longest, each.leftMs), 0)
  return {
    text: `${causes.join(' ')} To try again at once: "org-access-proxy resume".`,
    since: Math.min(...[...groups.values()].map(({ since }) => since)),
    leftMs: leftMs > 0 ? leftMs : undefined,
  }
}

/** In one pass: a wrong secret makes thousands of them, and this is asked every two seconds. */
export function groupedByCause(
  troubled: readonly { readonly org: OrgId; readonly error: Failure; readonly since: number }[],
) {
  const groups = new Map<string, { readonly orgs: OrgId[]; since: number }>()
  for (const { org, error, since } of troubled) {
    const cause = causeForOperator(error) ?? ''
    const group = groups.get(cause) ?? { orgs: [], since }
    groups.set(cause, group)
    group.orgs.push(org)
    group.since = Math.min(group.since, since)
  }
  return groups
}

function rejected(call: string | undefined, note: string | undefined, isRevoked: boolean): string {
  if (call === undefined) {
    return 'The token endpoint rejects the App credentials of the minter. Check appId and the App secret at the minter.'
  }
  const before = isRevoked
    ? ' It accepted them before, so they may have been revoked. Tokens that are held go on working.'
    : ''
  const says = note === undefined ? '' : ` ${note}`
  return `The token endpoint rejects the App credentials: it answers 401, or 400 with invalid_client.${before}${says} Check appId, the App secret, and that they are for ${call}.`
}

/** In one pass: there may be a hundred thousand orgs. */
export function orgWarnings(orgs: Orgs, now: number): PartWarnings {
  const unaccepted: OrgId[] = []
  const rivalled: OrgId[] = []
  const learned: OrgId[] = []
  const suspected: OrgId[] = []
  const statuses = new Set<number>()
  let until = 0
  orgs.forEach(({ id, hasNoGoodToken, rivalUntil, learnedStatus, suspectedStatus }) => {
    if (hasNoGoodToken) unaccepted.push(id)
    if (rivalUntil > now) rivalled.push(id)
    until = Math.max(until, rivalUntil)
    if (learnedStatus !== undefined) learned.push(id)
    else if (suspectedStatus !== undefined) suspected.push(id)
    const status = learnedStatus ?? suspectedStatus
    if (status !== undefined) statuses.add(status)
  })
  const told = [...statuses].sort().join(', ')
  const texts = [
    learned.length > 0 &&
      `The service ends tokens of ${named(learned)} with another status than 401, as a new token has shown. Clients got it four times, and POSTs get it each time. Set tokens.rejectedStatuses to 401, ${told}.`,
    suspected.length > 0 &&
      `The service may end tokens of ${named(suspected)} with another status than 401: twice, a row of POSTs got it, and the next one with a new token was accepted. If it does, set tokens.rejectedStatuses to 401, ${told}.`,
  ].filter((text) => text !== false)
  return {
    fresh_tokens_rejected:
      unaccepted.length === 0
        ? undefined
        : `The service rejected new tokens of ${named(unaccepted)}. If other requests of the Org succeed, it may not use the routes that are rejected: see the errors below. Otherwise, check that baseUrl leads to the service that the tokens are for, and whether it wants more or other headers (tokens.header, origin.secretHeaders).`,
    tokens_ended_young:
      rivalled.length === 0
        ? undefined
        : {
            text: `New tokens of ${named(rivalled)} were accepted, and rejected seconds later, again and again: another proxy mints for the same Orgs, and each new token ends the one before. Have all proxies share tokens through a store (fleet.store), or take them from one minter (minter.url). During a rolling update, end the former instance. If there is no other proxy, tokens live for less than tokens.settleTime: set it, and tokens.lifetime, below their life.`,
            leftMs: until - now,
          },
    rejection_status_learned: texts.length === 0 ? undefined : texts.join(' '),
  }
}
