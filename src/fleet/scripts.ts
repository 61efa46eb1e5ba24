/**
 * The operations on the store, as scripts that the server runs atomically. Each touches the keys of one org, whose name
 * stands in braces: a cluster keeps these keys in one slot. A value that no replica can have written counts as absent and is
 * overwritten: one of another type, one without an expiry, or one that is too large.
 */

import { createHash } from 'node:crypto'

export interface Script<T> {
  readonly text: string
  readonly sha1: string
  /** Undefined for an answer that makes no sense. */
  readonly parse: (reply: unknown) => T | undefined
}

/** A token as the store holds it. The seal authenticates everything but the time left. */
export interface StoredToken {
  /** See `FleetKeys.markOf`. */
  readonly mark: string
  /** Its remaining time when it was new. */
  readonly spanMs: number
  readonly sealed: string
}

export interface ClaimRequest {
  /** Drawn at random for each mint. */
  readonly owner: string
  readonly leaseMs: number
  /** A token that is this old or older is no answer. */
  readonly maxAgeMs: number
  /** Marks of tokens that are no answer. */
  readonly except: readonly string[]
}

export interface FoundToken extends StoredToken {
  readonly kind: 'token'
  /** Its span minus the time that is left of it: no two clocks are compared. */
  readonly ageMs: number
  readonly storeTimeMs: number
}

export type ClaimReply =
  | FoundToken
  /** The caller should mint. All other claimers wait until the lease ends. */
  | { readonly kind: 'acquired'; readonly storeTimeMs: number }
  /** Another replica mints. Its lease ends by itself after `restMs`. */
  | { readonly kind: 'held'; readonly restMs: number; readonly storeTimeMs: number }

const MARK_LENGTH = 22
const SPAN_DIGITS = 10
const SEALED_AT = MARK_LENGTH + SPAN_DIGITS
/** The largest token, sealed and in base64, takes 22,100 octets. */
const MAX_TOKEN_BYTES = 24 * 1024
const MAX_LEASE_BYTES = 64
/** A lease with more time left was not written by a replica. */
const MAX_LEASE_MS = 60_000
/** A lease that lasts so many times as long as the claimer's own holds nobody up: a stranger may have written it. */
const LEASE_TOLERANCE = 1.5

/** Begins with the mark and the span, so that the scripts can read them. */
export function storedValue({ mark, spanMs, sealed }: StoredToken): string {
  return `${mark}${String(spanMs).padStart(SPAN_DIGITS, '0')}${sealed}`
}

const PARTS = `
local function read(key, most)
  local size = redis.pcall('STRLEN', key)
  if type(size) ~= 'number' or size == 0 or size > most then return nil end
  local rest = redis.call('PTTL', key)
  if rest < 0 then return nil end
  return redis.call('GET', key), rest
end
local function readToken(key)
  local value, rest = read(key, ${MAX_TOKEN_BYTES})
  local span = value and tonumber(string.sub(value, ${MARK_LENGTH + 1}, ${SEALED_AT}))
  if not span or rest > span then return nil end
  return value, span - rest
end
local function readLease(key)
  local owner, rest = read(key, ${MAX_LEASE_BYTES})
  if not owner or rest > ${MAX_LEASE_MS} then return nil end
  return owner, rest
end`

export function claimArguments({ owner, leaseMs, maxAgeMs, except }: ClaimRequest): string[] {
  const lease = String(Math.ceil(Math.min(leaseMs, MAX_LEASE_MS)))
  const maxAge = String(Math.ceil(Math.min(maxAgeMs, Number.MAX_SAFE_INTEGER)))
  return [owner, lease, maxAge, ...except]
}

/** KEYS token, lease. ARGV see `claimArguments`. */
export const CLAIM = script<ClaimReply>(
  `${PARTS}
local function answer()
  local value, age = readToken(KEYS[1])
  if not value or age >= tonumber(ARGV[3]) then return nil end
  for i = 4, #ARGV do
    if ARGV[i] == string.sub(value, 1, ${MARK_LENGTH}) then return nil end
  end
  return value, age
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local value, age = answer()
if value then return {'token', age, now, value} end
local owner, rest = readLease(KEYS[2])
if owner and owner ~= ARGV[1] and rest <= ARGV[2] * ${LEASE_TOLERANCE} then return {'held', rest, now} end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return {'acquired', now}`,
  (reply) => {
    const [kind, ms, storeTimeMs, value]: unknown[] = Array.isArray(reply) ? reply : []
    if (typeof ms !== 'number') return undefined
    if (kind === 'acquired') return { kind, storeTimeMs: ms }
    if (typeof storeTimeMs !== 'number') return undefined
    if (kind === 'held') return { kind, restMs: ms, storeTimeMs }
    if (kind !== 'token' || typeof value !== 'string') return undefined
    const spanMs = Number(value.slice(MARK_LENGTH, SEALED_AT))
    return { kind, mark: value.slice(0, MARK_LENGTH), spanMs, sealed: value.slice(SEALED_AT), ageMs: ms, storeTimeMs }
  },
)

/**
 * KEYS token, lease. ARGV owner, value, time left in ms, age in ms. A replica that was slower than its lease publishes too,
 * unless a younger token is there. The lease of another replica stays.
 */
export const PUBLISH = operation(
  ['published', 'lost'],
  `${PARTS}
local owner = readLease(KEYS[2])
if owner ~= ARGV[1] then
  local value, age = readToken(KEYS[1])
  if value and age <= tonumber(ARGV[4]) then return 'lost' end
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
if not owner or owner == ARGV[1] then redis.call('DEL', KEYS[2]) end
return 'published'`,
)

/** KEYS lease. ARGV owner. */
export const RELEASE = operation(
  ['ok', 'lost'],
  `${PARTS}
if readLease(KEYS[1]) ~= ARGV[1] then return 'lost' end
redis.call('DEL', KEYS[1])
return 'ok'`,
)

/** KEYS token. The lease of a mint under way stays. */
export const FORGET = operation(['ok'], `redis.call('DEL', KEYS[1]) return 'ok'`)

/** KEYS probe. Runs each command of the other scripts: a store that is read-only or permits too little is of no use. */
export const PROBE = operation(
  ['ok'],
  `redis.call('SET', KEYS[1], '1', 'PX', 1000)
redis.call('STRLEN', KEYS[1])
redis.call('PTTL', KEYS[1])
redis.call('GET', KEYS[1])
redis.call('TIME')
redis.call('DEL', KEYS[1])
return 'ok'`,
)

/** A script that answers with one of these words. */
function operation<const Word extends string>(words: readonly Word[], text: string): Script<{ readonly kind: Word }> {
  return script(text, (reply) => {
    const kind = words.find((word) => word === reply)
    return kind && { kind }
  })
}

function script<T>(text: string, parse: Script<T>['parse']): Script<T> {
  return { text, sha1: createHash('sha1').update(text).digest('hex'), parse }
}
