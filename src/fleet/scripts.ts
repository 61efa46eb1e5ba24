/**
 * The operations of the store, as scripts that the server runs atomically. Each touches the keys of one name, which stands
 * in braces: a cluster keeps these in one slot. `pcall` and the checks of types are for values that a stranger has
 * written: they count as absent and are overwritten.
 */

import { createHash } from 'node:crypto'
import {
  type Board,
  type ClaimReply,
  MAX_LEASE_MS,
  type PermitReply,
  type PublishReply,
  type StoredToken,
} from './store.ts'

export interface Script<T> {
  readonly text: string
  readonly sha1: string
  /** Undefined for an answer that makes no sense. */
  readonly parse: (reply: unknown) => T | undefined
}

const DONE = { kind: 'ok' } as const
type Done = typeof DONE

/** A stored token is its mark, its span in ten digits, and the sealed text. */
const MARK_LENGTH = 22
const SPAN_LENGTH = 10
/** Begins the value of a lease that is only a note: an owner never begins so. */
const NOTE = '!'

/** Purges are kept for as long as a replica may have been without the store and still has to know of them. */
const PURGES_KEPT = 1_000
const PURGES_MS = 600_000
/** Read by replicas all the time, which starts it anew. */
const LIFETIME_MS = 7 * 24 * 3_600_000

export function storedValue({ mark, spanMs, sealed }: StoredToken): string {
  return `${mark}${String(spanMs).padStart(SPAN_LENGTH, '0')}${sealed}`
}

function parseStoredValue(value: string): StoredToken {
  const sealedAt = MARK_LENGTH + SPAN_LENGTH
  const spanMs = Number(value.slice(MARK_LENGTH, sealedAt))
  return { mark: value.slice(0, MARK_LENGTH), spanMs, sealed: value.slice(sealedAt) }
}

const TOKEN_PARTS = `
local function valueOf(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'string' then return value end
  return nil
end
local function ageOf(key, value)
  local span = tonumber(string.sub(value, ${MARK_LENGTH + 1}, ${MARK_LENGTH + SPAN_LENGTH}))
  local rest = redis.call('PTTL', key)
  if span == nil or rest < 0 or rest > span then return nil end
  return span - rest
end
local function ownerOf(key)
  local value = valueOf(key)
  if value == nil then return nil, 0 end
  local rest = redis.call('PTTL', key)
  if rest < 0 or rest > ${MAX_LEASE_MS} then return nil, 0 end
  return value, rest
end`

/** KEYS token, lease. ARGV owner, lease in ms, greatest age in ms, marks of tokens that are no answer. */
export const CLAIM = script<ClaimReply>(
  `${TOKEN_PARTS}
local function answer()
  local value = valueOf(KEYS[1])
  if value == nil then return nil end
  local age = ageOf(KEYS[1], value)
  if age == nil or age >= tonumber(ARGV[3]) then return nil end
  local mark = string.sub(value, 1, ${MARK_LENGTH})
  for i = 4, #ARGV do
    if ARGV[i] == mark then return nil end
  end
  return value, age
end
local value, age = answer()
if value then return {'token', value, age} end
local owner, rest = ownerOf(KEYS[2])
if owner and string.sub(owner, 1, 1) == '${NOTE}' then return {'noted', string.sub(owner, 2)} end
if owner and owner ~= ARGV[1] then return {'held', rest} end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return {'acquired'}`,
  (reply) => {
    const [kind, first, second] = Array.isArray(reply) ? reply : []
    switch (kind) {
      case 'token':
        if (typeof first !== 'string' || typeof second !== 'number') return undefined
        return { kind, token: parseStoredValue(first), ageMs: second }
      case 'held':
        return typeof first === 'number' ? { kind, restMs: first } : undefined
      case 'noted':
        return typeof first === 'string' ? { kind, note: first } : undefined
      case 'acquired':
        return { kind }
      default:
        return undefined
    }
  },
)

/**
 * KEYS token, lease. ARGV owner, value, time left in ms, age in ms. A replica that was slower than its lease publishes, too:
 * others wait for a token, and the lease of the next one stays.
 */
export const PUBLISH = script<PublishReply>(
  `${TOKEN_PARTS}
local owner = ownerOf(KEYS[2])
if owner ~= ARGV[1] then
  local value = valueOf(KEYS[1])
  local age = value and ageOf(KEYS[1], value)
  if age and age <= tonumber(ARGV[4]) then return 'lost' end
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
local isOthers = owner and owner ~= ARGV[1] and string.sub(owner, 1, 1) ~= '${NOTE}'
if not isOthers then redis.call('DEL', KEYS[2]) end
return 'published'`,
  (reply) => (reply === 'published' || reply === 'lost' ? { kind: reply } : undefined),
)

/** KEYS lease. ARGV owner, and the note with its time in ms, if there is one. */
export const RELEASE = command(`
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 'lost' end
if #ARGV == 3 then redis.call('SET', KEYS[1], '${NOTE}' .. ARGV[2], 'PX', ARGV[3]) else redis.call('DEL', KEYS[1]) end
return 'released'`)

/** KEYS token, lease. */
export const FORGET = command(`${TOKEN_PARTS}
redis.call('DEL', KEYS[1])
local owner = valueOf(KEYS[2])
if owner and string.sub(owner, 1, 1) == '${NOTE}' then redis.call('DEL', KEYS[2]) end
return 'forgotten'`)

const NOW = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)`

/**
 * KEYS calls, limit. ARGV calls, window in ms. The instants of the last calls, by the clock of the store, oldest first:
 * exact in any stretch of one window, where a counter would let twice as many through.
 */
export const PERMIT = script<PermitReply>(
  `${NOW}
local limit = redis.pcall('GET', KEYS[2])
if type(limit) == 'string' then
  local rest = redis.call('PTTL', KEYS[2])
  if rest > 0 then return {'limited', limit, rest} end
end
local count = redis.pcall('LLEN', KEYS[1])
if type(count) ~= 'number' then
  redis.call('DEL', KEYS[1])
  count = 0
end
local calls, window = tonumber(ARGV[1]), tonumber(ARGV[2])
while count >= calls do
  local oldest = tonumber(redis.call('LINDEX', KEYS[1], 0))
  if oldest and oldest <= now and oldest + window > now then return {'wait', oldest + window - now} end
  redis.call('LPOP', KEYS[1])
  count = count - 1
end
redis.call('RPUSH', KEYS[1], string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], window)
return {'granted'}`,
  (reply) => {
    const [kind, first, second] = Array.isArray(reply) ? reply : []
    if (kind === 'granted') return { kind }
    if (kind === 'wait' && typeof first === 'number') return { kind, waitMs: first }
    if (kind !== 'limited' || typeof first !== 'string' || typeof second !== 'number') return undefined
    return { kind, limit: { sealed: first, restMs: second } }
  },
)

/** KEYS lifetime, limit, purges. ARGV the purge that was read last, if there was one. */
export const READ_BOARD = script<Board>(
  `${NOW}
local lifetime = redis.pcall('GET', KEYS[1])
if type(lifetime) == 'string' then redis.call('PEXPIRE', KEYS[1], ${LIFETIME_MS}) else lifetime = false end
local limit = redis.pcall('GET', KEYS[2])
local rest = 0
if type(limit) == 'string' then rest = redis.call('PTTL', KEYS[2]) else limit = false end
local last = ARGV[1]
local purges = {}
if last then
  local entries = redis.pcall('XRANGE', KEYS[3], '(' .. last, '+', 'COUNT', ${PURGES_KEPT})
  if entries.err then entries = {} end
  for _, entry in ipairs(entries) do
    last = entry[1]
    local at = tonumber(string.match(last, '^%d+')) or 0
    table.insert(purges, entry[2][2] or '')
    table.insert(purges, math.max(0, now - at))
  end
else
  local entries = redis.pcall('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)
  last = not entries.err and entries[1] and entries[1][1] or '0-0'
end
return {lifetime, limit, rest, last, purges}`,
  (reply) => {
    const [lifetime, limit, restMs, until, entries] = Array.isArray(reply) ? reply : []
    if (typeof until !== 'string' || !Array.isArray(entries)) return undefined
    return {
      kind: 'ok',
      lifetime: typeof lifetime === 'string' ? lifetime : undefined,
      limit: typeof limit === 'string' && typeof restMs === 'number' ? { sealed: limit, restMs } : undefined,
      purges: entries.flatMap((sealed, index) =>
        index % 2 === 0 ? [{ sealed: String(sealed), ageMs: Number(entries[index + 1]) }] : [],
      ),
      until,
    }
  },
)

/** KEYS lifetime. ARGV sealed. */
export const SET_LIFETIME = command(`redis.call('SET', KEYS[1], ARGV[1], 'PX', ${LIFETIME_MS})`)

/** KEYS limit. ARGV sealed, its length in ms. The longer one stays. */
export const SET_LIMIT = command(`
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end`)

/** KEYS purges. ARGV sealed. */
export const ADD_PURGE = command(`
local added = redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ${PURGES_KEPT}, '*', 'p', ARGV[1])
if type(added) == 'table' and added.err then
  redis.call('DEL', KEYS[1])
  redis.call('XADD', KEYS[1], '*', 'p', ARGV[1])
end
redis.call('PEXPIRE', KEYS[1], ${PURGES_MS})`)

/** KEYS probe. A store that can be read only is of no use. */
export const PROBE = script<Done>(`redis.call('SET', KEYS[1], '1', 'PX', 1000) return 'written'`, (reply) =>
  reply === 'written' ? DONE : undefined,
)

function script<T>(text: string, parse: Script<T>['parse']): Script<T> {
  return { text, sha1: createHash('sha1').update(text).digest('hex'), parse }
}

/** A script whose answer says only that it has run. */
function command(text: string): Script<Done> {
  return script(text, () => DONE)
}
