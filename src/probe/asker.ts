/**
 * Sends the probe's mints and GETs, within its budget, and notes each answer. Nothing that it notes holds a credential: texts of
 * the service are taken over only if they are short, plain and none of ours.
 */

import * as clock from '../clock.ts'
import { OriginError } from '../errors.ts'
import { fieldValue } from '../http1/field-list.ts'
import type { WholeResponse } from '../http1/response-parser.ts'
import { targetPrefix } from '../http1/target.ts'
import type { OrgId } from '../org-id.ts'
import { holdsSecret, Secret } from '../secret.ts'
import {
  answeredAt,
  NoUsableToken,
  readJson,
  readTokenReply,
  type StatedLife,
  tellsError,
  tellsLimit,
} from '../token/token-reply.ts'
import { Unaskable } from './findings.ts'

/** The most that one probe sends. */
export const BUDGET = { mints: 20, gets: 200 } as const

interface CallRequest {
  readonly method: string
  readonly target: string
  readonly fields: readonly string[]
  readonly content?: Buffer
  readonly ignoresContent?: boolean
}

interface Wire {
  call(request: CallRequest): Promise<WholeResponse>
  close(): void
}

/** Monotonic milliseconds. */
export interface Clock {
  now(): number
  /** Rejects if the signal comes first. */
  sleep(ms: number, signal: AbortSignal): Promise<unknown>
}

/** The connection of the mints. */
const MINTS = -1

export interface AskerOptions {
  readonly baseUrl: URL
  /** Of the GETs, below `baseUrl`. */
  readonly path: string
  /** The names that lead to the token in the answer. */
  readonly field: readonly string[]
  readonly userAgent: string
  readonly mintRequest: (org: OrgId) => Promise<CallRequest>
  /** Fields with secrets for the service, with the token unless that is undefined: names and values in turn. */
  readonly credentials: (token: Secret | undefined) => readonly string[]
  /** No text that holds one of them is noted. */
  readonly secrets: readonly Secret[]
  /** A connection to the service or to the token endpoint, opened at its first call. */
  readonly open: (to: 'service' | 'endpoint') => Wire
  /** Interrupts the probe. */
  readonly signal: AbortSignal
  readonly clock: Clock
}

/** What an answer says about the token. No answer, 408, 429 and 5xx say nothing: they come whatever the token is. */
export type Verdict = 'accepted' | 'rejected' | 'nothing'

export interface Got {
  readonly at: number
  readonly endedAt: number
  readonly connection: number
  /** Undefined if there was no answer. */
  readonly status: number | undefined
  readonly verdict: Verdict
  /** `401, challenge Bearer error="invalid_token", JSON`, or why there was no answer. */
  readonly text: string
  /** Fields that tell limits. */
  readonly limits: string
  /** A limit was met. */
  readonly isLimited: boolean
}

export interface Mint extends Got {
  /** The names in the JSON answer, with dots; undefined if it is no JSON object. */
  readonly members: readonly string[] | undefined
  /** Of those, the ones that look like a token. */
  readonly candidates: readonly string[]
  readonly token: ProbeToken | undefined
  readonly stated: readonly StatedLife[]
  /** The endpoint's clock minus ours; undefined if it tells no time. Exact to a second and the time of the call. */
  readonly clockOffsetMs: number | undefined
}

export interface ProbeToken {
  readonly secret: Secret
  /** The call that brought it began, and was answered. */
  readonly askedAt: number
  readonly gotAt: number
  /** When the last accepted GET with it began. */
  acceptedAt: number
}

export class Asker {
  readonly mints: Mint[] = []
  readonly gets: Got[] = []
  field: readonly string[]
  readonly #options: AskerOptions
  readonly #wires = new Map<number, Wire>()
  readonly #secrets: Secret[]
  #getsSent = 0

  constructor(options: AskerOptions) {
    this.#options = options
    this.field = options.field
    this.#secrets = [...options.secrets]
    // The calls under way fail.
    options.signal.addEventListener('abort', () => this.close())
  }

  get getsLeft(): number {
    return BUDGET.gets - this.#getsSent
  }

  now(): number {
    return this.#options.clock.now()
  }

  /** @throws {Unaskable} if the probe was interrupted */
  async sleepUntil(at: number): Promise<void> {
    const { clock, signal } = this.#options
    this.#throwIfInterrupted()
    // A timer may be early by a part of a millisecond.
    while (clock.now() < at) {
      await clock.sleep(Math.ceil(at - clock.now()), signal).catch(() => undefined)
      this.#throwIfInterrupted()
    }
  }

  /** @throws {Unaskable} if the budget is spent, a limit was met, or the probe was interrupted */
  async mint(org: OrgId): Promise<Mint> {
    if (this.mints.length >= BUDGET.mints) throw new Unaskable(`all ${BUDGET.mints} mints were used`)
    if (this.mints.some(({ isLimited }) => isLimited)) throw new Unaskable('the token endpoint told a limit')
    const at = this.now()
    const answer = await this.#send(MINTS, await this.#options.mintRequest(org))
    // First, because the other texts must hold nothing of the token.
    const reply = this.#readReply(answer, at)
    const date = answer instanceof Error ? Number.NaN : Date.parse(fieldValue(answer.fields, 'date'))
    // `Date` has whole seconds, and was written on the way.
    const offsetMs = date + 500 - (clock.day() - (this.now() - at) / 2)
    const clockOffsetMs = Number.isNaN(offsetMs) ? undefined : offsetMs
    const noted = this.#note(answer, at, MINTS)
    const text = reply.lack === undefined ? noted.text : `${noted.text}, ${reply.lack}`
    const mint = { ...noted, ...reply, text, clockOffsetMs }
    this.mints.push(mint)
    return mint
  }

  /** @throws {Unaskable} if the budget is spent, a limit was met, or the probe was interrupted */
  async get(token: ProbeToken | undefined, connection: number): Promise<Got> {
    if (this.getsLeft === 0) throw new Unaskable(`all ${BUDGET.gets} GETs were used`)
    if (this.gets.some(({ isLimited }) => isLimited)) throw new Unaskable('the service told a limit')
    const { baseUrl, path, userAgent, credentials } = this.#options
    const fields = ['host', baseUrl.host, ...credentials(token?.secret), 'accept', '*/*', 'user-agent', userAgent]
    this.#getsSent++
    const at = this.now()
    const target = targetPrefix(baseUrl) + path
    const answer = await this.#send(connection, { method: 'GET', target, fields, ignoresContent: true })
    const got = this.#note(answer, at, connection)
    if (got.verdict === 'accepted' && token !== undefined) token.acceptedAt = at
    this.gets.push(got)
    return got
  }

  close(): void {
    for (const wire of this.#wires.values()) wire.close()
  }

  #throwIfInterrupted(): void {
    if (this.#options.signal.aborted) throw new Unaskable('the probe was interrupted')
  }

  async #send(connection: number, request: CallRequest): Promise<WholeResponse | Error> {
    this.#throwIfInterrupted()
    const wire = this.#wires.get(connection) ?? this.#options.open(connection === MINTS ? 'endpoint' : 'service')
    this.#wires.set(connection, wire)
    const answer = await wire.call(request).catch(failureOf)
    this.#throwIfInterrupted()
    return answer
  }

  #note(answer: WholeResponse | Error, at: number, connection: number): Got {
    const times = { at, endedAt: this.now(), connection }
    if (answer instanceof Error) {
      return { ...times, status: undefined, verdict: 'nothing', text: answer.message, limits: '', isLimited: false }
    }
    const { status, fields } = answer
    const isLimited = status === 429 || ((status === 403 || status === 503) && tellsLimit(fields, clock.day()))
    const [type] = /json|html/i.exec(fieldValue(fields, 'content-type')) ?? []
    const [allow] = /^(?:(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)[, ]*)+$/.exec(fieldValue(fields, 'allow')) ?? []
    const parts = [
      String(status),
      challengeText(fieldValue(fields, 'www-authenticate')),
      ...(status === 405 && allow !== undefined ? [`it takes ${allow}: set tokens.endpoint`] : []),
      type?.toUpperCase() ?? '',
    ]
    const text = parts.filter((part) => part !== '').join(', ')
    const verdict = isLimited ? 'nothing' : verdictOf(status)
    return { ...times, status, verdict, text, limits: this.#limitsIn(fields), isLimited }
  }

  #readReply(answer: WholeResponse | Error, askedAt: number) {
    const none = { members: undefined, candidates: [], token: undefined, stated: [], lack: undefined }
    if (answer instanceof Error || answer.status >= 300) return none
    const { content, fields } = answer
    const json = readJson(content)
    const members = membersOf(json)
    // A member that looks like a token may be one.
    const likeTokens = (members ?? []).filter(([, value]) => TOKEN_LIKE.test(value))
    this.#secrets.push(...likeTokens.map(([, value]) => new Secret(value)))
    const nameOf = ([name]: Member) => this.#plain(name, /^[\w.$:-]{1,60}$/)
    const shown = {
      members: members?.map((member) => nameOf(member) ?? '(withheld)'),
      candidates: (tellsError(json) ? [] : likeTokens).flatMap((member) => nameOf(member) ?? []),
    }
    try {
      const { token, stated } = readTokenReply(answer, this.field, answeredAt(fields, clock.day()))
      const secret = new Secret(token)
      this.#secrets.push(secret)
      return { ...none, ...shown, stated, token: { secret, askedAt, gotAt: this.now(), acceptedAt: askedAt } }
    } catch (error) {
      if (!(error instanceof NoUsableToken)) throw error
      return { ...none, ...shown, lack: error.message }
    }
  }

  /** Undefined unless the text is as expected, and holds nothing of a credential. */
  #plain(text: string, expected: RegExp): string | undefined {
    // A long word with digits may be a secret in another spelling, or a token that we never got to know.
    const isRandom = (text.match(/[\w+/=-]{20,}/g) ?? []).some((word) => /\d/.test(word))
    const isPart = (secret: Secret) => text.length > 7 && secret.reveal().includes(text)
    const isOurs = holdsSecret(text, this.#secrets) || this.#secrets.some(isPart)
    return !expected.test(text) || isRandom || isOurs ? undefined : text
  }

  #limitsIn(fields: readonly string[]): string {
    const texts = fields.flatMap((name, index) => {
      if (index % 2 === 1 || !/^(?:retry-after|(?:x-)?rate-?limit(?:-[a-z]{1,20})?)$/i.test(name)) return []
      return [`${name}: ${this.#plain(fields[index + 1] ?? '', /^[\w ,;:="./-]{1,60}$/) ?? '(withheld)'}`]
    })
    return texts.join(', ')
  }
}

function verdictOf(status: number): Verdict {
  if (status >= 200 && status < 300) return 'accepted'
  return status >= 500 || status === 408 ? 'nothing' : 'rejected'
}

function failureOf(error: unknown): Error {
  if (!(error instanceof OriginError)) throw error
  const { code, message, cause } = error
  return new Error(`${code}: ${error.hint ?? (cause instanceof Error && 'code' in cause ? cause.code : message)}`)
}

/** The scheme and the errors of RFC 6750 §3.1; of others, that there is one. */
function challengeText(value: string): string {
  const [scheme] = /^(?:Bearer|Basic)\b/i.exec(value) ?? []
  const [error] = /\berror="(?:invalid_request|invalid_token|insufficient_scope)"/.exec(value) ?? []
  const parts = ['challenge', scheme, error].filter((part) => part !== undefined)
  return value === '' ? '' : parts.join(' ')
}

/** A name, with dots, and its text, empty for what is no text. */
type Member = readonly [string, string]

const TOKEN_LIKE = /^(?!\d{4}-\d\d-\d\dT|https?:)[\x21-\x7e]{16,16384}$/i

/** Down to the second level; undefined if it is no JSON object. */
function membersOf(value: unknown): Member[] | undefined {
  if (!isObject(value)) return undefined
  const inner = (name: string, each: unknown) =>
    isObject(each)
      ? Object.entries(each).map(([key, text]) => [`${name}.${key}`, text] as const)
      : [[name, each] as const]
  const members = Object.entries(value).flatMap(([name, each]) => inner(name, each))
  return members.slice(0, 30).map(([name, each]) => [name, typeof each === 'string' ? each : ''])
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
