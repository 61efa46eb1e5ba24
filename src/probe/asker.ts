/**
 * Sends the probe's mints and GETs, within its budget, and notes each answer. Nothing that it notes holds a credential: texts of
 * the service are taken over only if they are short, plain and none of ours.
 */

import { OriginError } from '../errors.ts'
import { fieldValue } from '../http1/fields.ts'
import { targetPrefix } from '../http1/target.ts'
import type { OrgId } from '../org-id.ts'
import { Secret } from '../secret.ts'
import { endpointTarget } from '../token/token-endpoint.ts'
import { answeredAt, memberOf, parseReply, readTokenReply, type StatedLife, tellsLimit } from '../token/token-reply.ts'

/** The most that one probe sends. */
export const BUDGET = { mints: 20, gets: 200 } as const
export const CONNECTIONS = 20

/** One connection to the service, opened at its first call. */
export interface Wire {
  call(request: WireRequest): Promise<WireAnswer>
  close(): void
}

export interface WireRequest {
  readonly method: string
  readonly target: string
  readonly fields: readonly string[]
  readonly ignoresContent?: boolean
}

export interface WireAnswer {
  readonly status: number
  readonly fields: readonly string[]
  readonly content: Buffer
  readonly keepsAlive: boolean
  readonly keepAliveSeconds: number | undefined
}

export interface ProbedService {
  readonly baseUrl: URL
  readonly endpoint: { readonly method: string; readonly path: string }
  readonly field: readonly string[]
  /** The value of `Authorization` for mints. */
  readonly apiKey: Secret
  readonly appSecret: Secret
  readonly userAgent: string
  /** Of the GETs, below `baseUrl`. */
  readonly path: string
}

interface Answer {
  /** Monotonic milliseconds. */
  readonly at: number
  readonly durationMs: number
  /** Undefined if there was no answer. */
  readonly status: number | undefined
  /** Why there was none. */
  readonly failure: string | undefined
  /** Fields that tell limits. */
  readonly limits: readonly string[]
  /** A limit was met. */
  readonly isLimited: boolean
  /** The host of a redirect. */
  readonly redirect: string | undefined
  readonly contentType: string | undefined
  readonly challenge: string | undefined
}

export interface Mint extends Answer {
  /** The names in the JSON answer; those in objects with dots. Undefined if it is no JSON object. */
  readonly members: readonly string[] | undefined
  /** Of those, the ones that look like a token. */
  readonly candidates: readonly string[]
  readonly token: ProbeToken | undefined
  readonly stated: readonly StatedLife[]
  /** Methods of `Allow`. */
  readonly allow: string | undefined
  /** The endpoint's clock minus ours; undefined if it tells no time. Exact to a second and the time of the call. */
  readonly clockOffsetMs: number | undefined
}

export interface Got extends Answer {
  readonly connection: number
  readonly keepsAlive: boolean | undefined
  readonly keepAliveSeconds: number | undefined
}

export interface ProbeToken {
  readonly secret: Secret
  readonly isJwt: boolean
  /** Monotonic milliseconds: the call that brought it began, and was answered. */
  readonly askedAt: number
  readonly gotAt: number
}

/** A long word with digits may be a token that we never got to know. */
function looksRandom(text: string): boolean {
  return (text.match(/[\w+/=-]{24,}/g) ?? []).some((word) => /\d/.test(word))
}

/** A question cannot be asked. The message is the reason. */
export class Unaskable extends Error {}

export class Asker {
  readonly service: ProbedService
  readonly mints: Mint[] = []
  readonly gets: Got[] = []
  /** The names that lead to the token in the answer. */
  field: readonly string[]
  readonly #open: () => Wire
  readonly #mintWire: Wire
  readonly #wires = new Map<number, Wire>()
  readonly #secrets: string[]

  constructor(service: ProbedService, open: () => Wire) {
    this.service = service
    this.field = service.field
    this.#open = open
    this.#mintWire = open()
    this.#secrets = [service.appSecret, service.apiKey].flatMap((secret) =>
      formsOf(secret.reveal().replace(/^Basic /, '')),
    )
  }

  get getsLeft(): number {
    return BUDGET.gets - this.gets.length
  }

  /** @throws {Unaskable} if the budget is spent, or a limit was met */
  async mint(org: OrgId): Promise<Mint> {
    if (this.mints.length >= BUDGET.mints) throw new Unaskable(`all ${BUDGET.mints} mints were used`)
    if (this.mints.some(({ isLimited }) => isLimited)) throw new Unaskable('the token endpoint told a limit')
    const { baseUrl, endpoint, apiKey, userAgent } = this.service
    const fields = ['host', baseUrl.host, 'authorization', apiKey.reveal(), 'accept', 'application/json']
    const request = {
      method: endpoint.method,
      target: endpointTarget(this.service, org),
      fields: [...fields, 'accept-encoding', 'identity', 'user-agent', userAgent],
    }
    const at = performance.now()
    const answer = await this.#mintWire.call(request).catch(failureOf)
    const nowMs = Date.now()
    // First, because the other texts must hold nothing of the token.
    const reply = this.#readReply(answer, this.field, at)
    const noted = this.#note(answer, at)
    const mint = { ...noted, ...reply, ...endpointFacts(answer, nowMs, noted.durationMs) }
    this.mints.push(mint)
    return mint
  }

  /** @throws {Unaskable} if the budget is spent, or a limit was met */
  async get(token: ProbeToken | undefined, connection = 0): Promise<Got> {
    if (this.getsLeft === 0) throw new Unaskable(`all ${BUDGET.gets} GETs were used`)
    if (this.gets.some(({ isLimited }) => isLimited)) throw new Unaskable('the service told a limit')
    const { baseUrl, path, userAgent } = this.service
    const credentials = token === undefined ? [] : ['authorization', `Bearer ${token.secret.reveal()}`]
    const fields = ['host', baseUrl.host, ...credentials, 'accept', '*/*', 'user-agent', userAgent]
    const target = targetPrefix(baseUrl) + path
    const place = this.gets.length
    const wire = this.#wires.get(connection) ?? this.#open()
    this.#wires.set(connection, wire)
    const at = performance.now()
    const sent = wire.call({ method: 'GET', target, fields, ignoresContent: true })
    // The place is taken at once: others are asked at the same time.
    this.gets.push({
      ...this.#note(new Error('no answer yet'), at),
      connection,
      keepsAlive: undefined,
      keepAliveSeconds: undefined,
    })
    const answer = await sent.catch(failureOf)
    const { keepsAlive, keepAliveSeconds }: Partial<WireAnswer> = answer instanceof Error ? {} : answer
    const got = { ...this.#note(answer, at), connection, keepsAlive, keepAliveSeconds }
    this.gets[place] = got
    return got
  }

  close(): void {
    this.#mintWire.close()
    for (const wire of this.#wires.values()) wire.close()
  }

  #note(answer: WireAnswer | Error, at: number): Answer {
    const durationMs = performance.now() - at
    if (answer instanceof Error) {
      const nothing = { status: undefined, redirect: undefined, contentType: undefined, challenge: undefined }
      return { at, durationMs, ...nothing, failure: answer.message, limits: [], isLimited: false }
    }
    const { status, fields } = answer
    const location = fieldValue(fields, 'location')
    return {
      at,
      durationMs,
      status,
      failure: undefined,
      limits: this.#limitFields(fields),
      isLimited: status === 429 || ((status === 403 || status === 503) && tellsLimit(fields, Date.now())),
      redirect: status >= 300 && status < 400 ? this.#hostOf(location) : undefined,
      contentType: this.#shown(fieldValue(fields, 'content-type').replace(/;.*/, ''), /^[\w.+/-]{1,60}$/),
      challenge: this.#challengeOf(fieldValue(fields, 'www-authenticate')),
    }
  }

  #readReply(answer: WireAnswer | Error, field: readonly string[], askedAt: number) {
    const none = { members: undefined, candidates: [], token: undefined, stated: [] }
    if (answer instanceof Error || answer.status >= 300) return none
    const { content, fields } = answer
    let token: ProbeToken | undefined
    let stated: readonly StatedLife[] = []
    try {
      const reply = readTokenReply(content, field, answeredAt(fields, Date.now()))
      const secret = new Secret(reply.token)
      token = { secret, isJwt: isJwt(reply.token), askedAt, gotAt: performance.now() }
      stated = reply.stated
      this.#secrets.push(...formsOf(reply.token))
    } catch {
      // The names of its members tell why.
    }
    const named = membersOf(content)
    // A member that looks like a token may be one.
    for (const { looksLikeToken, value } of named ?? []) if (looksLikeToken) this.#secrets.push(...formsOf(value))
    const shownNames = named?.map(({ name, ...rest }) => ({
      ...rest,
      name: this.#shown(name, /^[\w.$:-]{1,60}$/) ?? '(withheld)',
    }))
    const candidates = shownNames?.filter(({ looksLikeToken, name }) => looksLikeToken && name !== '(withheld)')
    return {
      members: shownNames?.map(({ name }) => name),
      candidates: (candidates ?? []).map(({ name }) => name),
      token,
      stated,
    }
  }

  /** Undefined unless the text is as expected, and holds nothing of a credential. */
  #shown(text: string, expected: RegExp): string | undefined {
    if (!expected.test(text) || looksRandom(text)) return undefined
    return this.#secrets.some((secret) => text.includes(secret)) ? undefined : text
  }

  #hostOf(location: string): string {
    const { baseUrl } = this.service
    const host = URL.canParse(location, baseUrl.href) ? new URL(location, baseUrl.href).host : ''
    return this.#shown(host, /^[\w.:[\]-]{1,80}$/) ?? 'a host that is not shown'
  }

  /** Its scheme, and the error that it names. */
  #challengeOf(value: string): string | undefined {
    const [, scheme = ''] = /^([\w-]{1,20})(?: |$)/.exec(value) ?? []
    const [, error] = /\berror="([\w-]{1,40})"/.exec(value) ?? []
    if (scheme === '') return value === '' ? undefined : 'one that is not shown'
    return (
      this.#shown(error === undefined ? scheme : `${scheme} error="${error}"`, /^.{1,80}$/) ?? 'one that is not shown'
    )
  }

  #limitFields(fields: readonly string[]): string[] {
    return fields.flatMap((name, index) => {
      const value = fields[index + 1] ?? ''
      if (index % 2 === 1 || !/^(?:retry-after|(?:x-)?rate-?limit[\w-]{0,30})$/i.test(name)) return []
      return [`${name}: ${this.#shown(value, /^[\w ,;:="./-]{1,60}$/) ?? '(withheld)'}`]
    })
  }
}

function failureOf(error: unknown): Error {
  if (!(error instanceof OriginError)) throw error
  const { code, message, cause } = error
  return new Error(`${code}: ${error.hint ?? (cause instanceof Error && 'code' in cause ? cause.code : message)}`)
}

function endpointFacts(answer: WireAnswer | Error, nowMs: number, durationMs: number) {
  if (answer instanceof Error) return { allow: undefined, clockOffsetMs: undefined }
  const date = Date.parse(fieldValue(answer.fields, 'date'))
  const [allow] = /^[A-Z, ]{3,60}$/.exec(fieldValue(answer.fields, 'allow')) ?? []
  // `Date` has whole seconds, and was written on the way.
  return { allow, clockOffsetMs: Number.isNaN(date) ? undefined : date + 500 - (nowMs - durationMs / 2) }
}

interface Member {
  readonly name: string
  readonly value: string
  readonly looksLikeToken: boolean
}

/** Down to the second level; undefined if the content is no JSON object. */
function membersOf(content: Buffer): Member[] | undefined {
  try {
    const { value } = parseReply(content)
    return isObject(value) ? namesIn(value, '', 1).slice(0, 30) : undefined
  } catch {
    return undefined
  }
}

function namesIn(object: object, prefix: string, levels: number): Member[] {
  return Object.keys(object).flatMap((key) => {
    const value = memberOf(object, key)
    const name = prefix + key
    if (isObject(value) && levels > 0) return [...namesIn(value, `${name}.`, levels - 1)]
    const isWord = typeof value === 'string' && /^[\x21-\x7e]{16,16384}$/.test(value)
    const looksLikeToken = isWord && !/^(?:\d{4}-\d\d-\d\dT|https?:)/i.test(value)
    return [{ name, value: typeof value === 'string' ? value : '', looksLikeToken }]
  })
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isJwt(token: string): boolean {
  return /^[\w-]+\.[\w-]+\.[\w-]*$/.test(token) && memberOf(parsePart(token.split('.')[0] ?? ''), 'alg') !== undefined
}

function parsePart(part: string): unknown {
  try {
    return JSON.parse(Buffer.from(part, 'base64url').toString())
  } catch {
    return undefined
  }
}

/** The spellings in which a service may give a credential back. */
function formsOf(value: string): string[] {
  const bytes = Buffer.from(value)
  const hex = bytes.toString('hex')
  const inner = [0, 1, 2].map((offset) => {
    const text = Buffer.concat([Buffer.alloc(offset), bytes])
      .toString('base64')
      .replace(/={1,2}$/, '')
    return text.slice(Math.ceil((offset * 8) / 6), Math.floor(((offset + bytes.length) * 8) / 6))
  })
  const base64 = inner.flatMap((text) => [text, text.replaceAll('+', '-').replaceAll('/', '_')])
  return [value, hex, hex.toUpperCase(), encodeURIComponent(value), ...base64].filter((form) => form.length > 3)
}
