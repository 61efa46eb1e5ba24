/** The store of a fleet: a Redis, as far as the proxy needs one. It does in TypeScript what the scripts do, and fails as its story says. */

import type { Random } from '../world/random.ts'
import type { Endpoint, Network } from '../world/tcp.ts'
import type { World } from '../world/world.ts'
import { Wire } from './wire.ts'

export const STORE_PORT = 6_379

/**
 * `killed`: gone with its connections; `emptied`: the same, and it comes back empty. `still`: it stands still, and then does all that
 * has come. `slow`: each answer is late. `cut`: the network loses all packets, also those of the connections that were open.
 */
export type StoreTrouble =
  | 'killed'
  | 'emptied'
  | 'still'
  | 'slow'
  | 'cut'
  | 'read-only'
  | 'full'
  | 'error'
  | 'nonsense'
  | 'garbage'

/** What an answer of a script is made of. */
export type Reply = string | number | readonly (string | number)[] | Error

interface Held {
  readonly value: string
  readonly endsAt: number
}

const MARK_LENGTH = 22
const SEALED_AT = MARK_LENGTH + 13
const READ_ONLY = new Error("READONLY You can't write against a read only replica.")
const FULL = new Error("OOM command not allowed when used memory > 'maxmemory'.")

/** Its keys, and the scripts. `store.test.ts` compares them with those of a real Redis. A value that no replica wrote has no part in it. */
export class StoreModel {
  readonly #keys = new Map<string, Held>()
  /** A write throws it. `full` lets a key be deleted. */
  refuses: 'read-only' | 'full' | undefined

  /** `now` is the clock of the store, in whole milliseconds. */
  run(script: string, keys: readonly string[], args: readonly string[], now: number): Reply {
    try {
      if (script.includes("'acquired'")) return this.#claim(keys, args, now)
      if (script.includes("'lost'")) return this.#publish(keys, args, now)
      if (script.includes("'STRLEN', 'PTTL', 'GET', 'DEL'")) this.#set(keys[0], '1', now + 1_000)
      this.#delete(keys[0])
      return 'ok'
    } catch (error) {
      return error as Error
    }
  }

  /** Those that end with this: an eviction, or all. */
  lose(ending = ''): void {
    for (const key of this.#keys.keys()) if (key.endsWith(ending)) this.#keys.delete(key)
  }

  #claim([tokenKey, leaseKey]: readonly string[], args: readonly string[], now: number): Reply {
    const [owner = '', leaseMs, maxAgeMs, except] = args
    const value = this.#read(tokenKey, now)?.value
    const isOther = value !== undefined && value.slice(0, MARK_LENGTH) !== except
    if (isOther && now - mintedAt(value) < Number(maxAgeMs)) return ['token', now, value]
    const lease = this.#read(leaseKey, now)
    const restMs = (lease?.endsAt ?? 0) - now
    if (lease !== undefined && lease.value !== owner && restMs <= Number(leaseMs)) {
      this.#set(leaseKey, lease.value, now + Math.max(restMs, 1))
      return ['held', now, restMs]
    }
    this.#set(leaseKey, owner, now + Number(leaseMs))
    return ['acquired', now]
  }

  #publish([tokenKey, leaseKey]: readonly string[], [by, value, restMs]: readonly string[], now: number): Reply {
    const owner = this.#read(leaseKey, now)?.value
    const former = owner === by ? undefined : this.#read(tokenKey, now)?.value
    if (value !== undefined && former !== undefined && mintedAt(former) >= mintedAt(value)) return 'lost'
    if (value !== undefined) this.#set(tokenKey, value, now + Number(restMs))
    if (owner === undefined || owner === by) this.#delete(leaseKey)
    return 'ok'
  }

  #read(key = '', now: number): Held | undefined {
    const held = this.#keys.get(key)
    return held !== undefined && now <= held.endsAt ? held : undefined
  }

  #set(key = '', value: string, endsAt: number): void {
    if (this.refuses !== undefined) throw this.refuses === 'full' ? FULL : READ_ONLY
    this.#keys.set(key, { value, endsAt })
  }

  #delete(key = ''): void {
    if (this.refuses === 'read-only') throw READ_ONLY
    this.#keys.delete(key)
  }
}

function mintedAt(value: string): number {
  return Number(value.slice(MARK_LENGTH, SEALED_AT))
}

export class Store {
  readonly model = new StoreModel()
  readonly world: World
  readonly random: Random
  /** How far its clock is ahead of the others. */
  readonly #aheadMs: number
  readonly #network: Network
  /** Of its connections. */
  readonly #endpoints = new Set<Endpoint>()
  /** What it will do when it goes on. */
  #undone: (() => void)[] = []
  trouble: StoreTrouble | undefined

  constructor(world: World, network: Network, random: Random, aheadMs: number) {
    this.world = world
    this.random = random
    this.#aheadMs = aheadMs
    this.#network = network
    const accepted = (endpoint: Endpoint) => {
      this.#endpoints.add(endpoint)
      new StoreConnection(this, endpoint)
    }
    network.listen({ address: '127.0.0.1', port: STORE_PORT, accepted })
  }

  begin(trouble: StoreTrouble): void {
    this.trouble = trouble
    if (trouble === 'killed' || trouble === 'emptied') this.dropConnections()
    if (trouble === 'emptied') this.model.lose()
    if (trouble === 'read-only' || trouble === 'full') this.model.refuses = trouble
    if (trouble === 'cut')
      for (const each of this.#endpoints) for (const end of [each, each.peer]) if (end) end.isCut = true
  }

  end(): void {
    this.trouble = undefined
    this.model.refuses = undefined
    for (const run of this.#undone.splice(0)) run()
  }

  dropConnections(): void {
    for (const each of this.#endpoints) if (this.#network.open.has(each)) each.reset()
    this.#endpoints.clear()
  }

  /** Answers when the trouble lets it. */
  do(command: readonly string[], answer: (bytes: string) => void): void {
    const run = () => answer(this.#replyTo(command))
    if (this.trouble === 'still') this.#undone.push(run)
    else run()
  }

  #replyTo([name = '', script = '', count, ...rest]: readonly string[]): string {
    if (this.trouble === 'error') return '-LOADING Redis is loading the dataset in memory\r\n'
    if (this.trouble === 'nonsense') return '+OK\r\n'
    if (this.trouble === 'garbage') return 'HTTP/1.1 400 Bad Request\r\n\r\n'
    if (name.toUpperCase() !== 'EVAL') return '-ERR unknown command\r\n'
    const [keys, args] = [rest.slice(0, Number(count)), rest.slice(Number(count))]
    const reply = this.model.run(script, keys, args, Math.floor(this.world.day + this.#aheadMs))
    const what = typeof reply === 'string' || reply instanceof Error ? reply : (reply as readonly unknown[]).slice(0, 2)
    this.world.tell('store', `${keys[0]?.slice(-8)} ${args[0]?.slice(0, 4) ?? ''} ${what}`)
    return written(reply)
  }
}

/** In RESP 2. */
function written(reply: Reply): string {
  if (reply instanceof Error) return `-${reply.message}\r\n`
  if (typeof reply === 'number') return `:${reply}\r\n`
  if (typeof reply === 'string') return `$${reply.length}\r\n${reply}\r\n`
  return `*${reply.length}\r\n${reply.map(written).join('')}`
}

class StoreConnection {
  readonly #store: Store
  readonly #wire: Wire
  #text = ''
  #lastAt = 0

  constructor(store: Store, endpoint: Endpoint) {
    this.#store = store
    this.#wire = new Wire(store.world, endpoint, {
      data: (bytes) => {
        this.#text += bytes.toString('latin1')
        for (let command = this.#next(); command !== undefined; command = this.#next()) this.#take(command)
      },
      ended: () => this.#wire.close(),
    })
    this.#wire.begin()
  }

  #take(command: readonly string[]): void {
    const { world, trouble, random } = this.#store
    const write = (bytes: string) => this.#wire.isClosed || this.#wire.write(bytes)
    if (trouble !== 'slow') {
      this.#store.do(command, write)
      return
    }
    // In order. Some are done at once, and answered later.
    this.#lastAt = Math.max(this.#lastAt, world.now + random.spread(20, 400))
    const later = (run: () => void) => void world.at(this.#lastAt, run)
    if (random.chance(0.5)) later(() => this.#store.do(command, write))
    else this.#store.do(command, (bytes) => later(() => write(bytes)))
  }

  /** An array of bulk strings, if it is whole. */
  #next(): string[] | undefined {
    const text = this.#text
    const lengthAt = (at: number): [length: number, next: number] | undefined => {
      const end = text.indexOf('\r\n', at)
      return end < 0 ? undefined : [Number(text.slice(at + 1, end)), end + 2]
    }
    const first = lengthAt(0)
    if (first === undefined) return undefined
    const parts: string[] = []
    let [count, at] = first
    for (; count > 0; count--) {
      const [length, from] = lengthAt(at) ?? [Number.POSITIVE_INFINITY, 0]
      if (from + length + 2 > text.length) return undefined
      parts.push(text.slice(from, from + length))
      at = from + length + 2
    }
    this.#text = text.slice(at)
    return parts
  }
}
