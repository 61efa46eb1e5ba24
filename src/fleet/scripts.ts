/**
 * The operations on the store, as scripts that the server runs atomically. Each touches the keys of one org, whose name
 * stands in braces: a cluster keeps these keys in one slot. A value that no replica can have written counts as absent and is
 * overwritten: one of another type, one without an expiry, or one that is too large.
 */

export interface Script<Reply> {
  readonly operation: 'claim' | 'publish' | 'release' | 'forget' | 'probe'
  readonly text: string
  /** Undefined for an answer that makes no sense. */
  readonly parse: (reply: unknown) => Reply | undefined
}

/** A token as the store holds it. The seal authenticates everything. */
export interface StoredToken {
  /** See `FleetKeys.markOf`. */
  readonly mark: string
  /** The store's clock when the token came, or a little before. So the clocks of replicas may differ. */
  readonly mintedAtMs: number
  readonly sealed: string
}

export type ClaimReply =
  | (StoredToken & { readonly kind: 'token'; readonly storeTimeMs: number; readonly ageMs: number })
  /** The caller should mint. All other claimers wait until the lease ends. */
  | { readonly kind: 'acquired'; readonly storeTimeMs: number }
  /** Another replica mints. Its lease ends by itself after `restMs`. */
  | { readonly kind: 'held'; readonly storeTimeMs: number; readonly restMs: number }

/** `lost`: another replica was faster. */
export type Told = { readonly kind: 'ok' | 'lost' }

const MARK_LENGTH = 22
const TIME_DIGITS = 13
const SEALED_AT = MARK_LENGTH + TIME_DIGITS
/** The largest token, sealed and in base64, takes 22,100 octets. */
const MAX_TOKEN_BYTES = 24 * 1024
const MAX_LEASE_BYTES = 64

/** Begins with the mark and the time, so that the scripts can read them. */
export function storedValue({ mark, mintedAtMs, sealed }: StoredToken): string {
  return `${mark}${String(mintedAtMs).padStart(TIME_DIGITS, '0')}${sealed}`
}

const PARTS = `
local function read(key, most)
  local size = redis.pcall('STRLEN', key)
  if type(size) ~= 'number' or size == 0 or size > most then return nil end
  local rest = redis.call('PTTL', key)
  if rest < 0 then return nil end
  return redis.call('GET', key), rest
end
local function mintedAt(value)
  return value and tonumber(string.sub(value, ${MARK_LENGTH + 1}, ${SEALED_AT}))
end`

/**
 * KEYS token, lease. ARGV owner; in ms its lease, which is the longest of another that counts, and the age at which a token is no
 * answer; the mark of one that is none. The lease of another is written as it is: nobody can tell a store that takes no writes.
 */
export const CLAIM: Script<ClaimReply> = {
  operation: 'claim',
  text: `${PARTS}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local value = read(KEYS[1], ${MAX_TOKEN_BYTES})
local isOther = value and string.sub(value, 1, ${MARK_LENGTH}) ~= ARGV[4]
if isOther and mintedAt(value) and now - mintedAt(value) < tonumber(ARGV[3]) then return {'token', now, value} end
local owner, rest = read(KEYS[2], ${MAX_LEASE_BYTES})
if owner and owner ~= ARGV[1] and rest <= tonumber(ARGV[2]) then
  redis.call('SET', KEYS[2], owner, 'PX', math.max(rest, 1))
  return {'held', now, rest}
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return {'acquired', now}`,
  parse: (reply) => {
    const [kind, storeTimeMs, last]: unknown[] = Array.isArray(reply) ? reply : []
    if (typeof storeTimeMs !== 'number') return undefined
    if (kind === 'acquired') return { kind, storeTimeMs }
    if (kind === 'held' && typeof last === 'number') return { kind, storeTimeMs, restMs: last }
    if (kind !== 'token' || typeof last !== 'string') return undefined
    const mintedAtMs = Number(last.slice(MARK_LENGTH, SEALED_AT))
    const ageMs = Math.max(0, storeTimeMs - mintedAtMs)
    return { kind, storeTimeMs, mark: last.slice(0, MARK_LENGTH), mintedAtMs, sealed: last.slice(SEALED_AT), ageMs }
  },
}

/**
 * KEYS token, lease. ARGV owner, value, time left in ms. A replica that was slower than its lease publishes too,
 * unless a younger token is there. The lease of another replica stays. Without a value, the lease is only released.
 */
export const PUBLISH = simple(
  'publish',
  `${PARTS}
local owner = read(KEYS[2], ${MAX_LEASE_BYTES})
local former = owner ~= ARGV[1] and mintedAt(read(KEYS[1], ${MAX_TOKEN_BYTES}))
if ARGV[2] and former and former >= mintedAt(ARGV[2]) then return 'lost' end
if ARGV[2] then redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
if not owner or owner == ARGV[1] then redis.call('DEL', KEYS[2]) end
return 'ok'`,
)

/** KEYS token, lease. ARGV owner. */
export const RELEASE = { ...PUBLISH, operation: 'release' } as const

/** KEYS token. The lease of a mint under way stays. */
export const FORGET = simple('forget', `redis.call('DEL', KEYS[1]) return 'ok'`)

/** Runs each command of the other scripts: a store that is read-only or permits too little is of no use. */
export const PROBE = simple(
  'probe',
  `
redis.call('SET', KEYS[1], '1', 'PX', 1000)
for _, command in ipairs({'STRLEN', 'PTTL', 'GET', 'DEL'}) do redis.call(command, KEYS[1]) end
redis.call('TIME')
return 'ok'`,
)

function simple(operation: Script<Told>['operation'], text: string): Script<Told> {
  return { operation, text, parse: (reply) => (reply === 'ok' || reply === 'lost' ? { kind: reply } : undefined) }
}
