/** The store in memory, with its own clock: a second implementation of the scripts. */

import type {
  Board,
  ClaimReply,
  ClaimRequest,
  FleetStore,
  Limit,
  PermitReply,
  PermitRequest,
  PublishReply,
  PublishRequest,
  ReleaseNote,
  StoredToken,
  StoreError,
} from '../../src/fleet/store.ts'

interface Timed<T> {
  readonly value: T
  readonly endsAt: number
}

type Lease = { readonly owner: string; readonly note?: never } | { readonly owner?: never; readonly note: string }

const LIFETIME_MS = 7 * 24 * 3_600_000

export class MemoryStore implements FleetStore {
  readonly #now: () => number
  readonly tokens = new Map<string, Timed<StoredToken>>()
  readonly leases = new Map<string, Timed<Lease>>()
  readonly #calls = new Map<string, number[]>()
  readonly #lifetimes = new Map<string, Timed<string>>()
  readonly #limits = new Map<string, Timed<string>>()
  readonly #purges: { readonly name: string; readonly sealed: string; readonly at: number }[] = []

  constructor(now: () => number) {
    this.#now = now
  }

  async claim(name: string, { owner, leaseMs, except, maxAgeMs }: ClaimRequest): Promise<ClaimReply> {
    const token = this.#living(this.tokens, name)
    if (token !== undefined && !except.includes(token.value.mark) && this.#age(token) < maxAgeMs) {
      return { kind: 'token', token: token.value, ageMs: this.#age(token) }
    }
    const lease = this.#living(this.leases, name)
    if (lease?.value.note !== undefined) return { kind: 'noted', note: lease.value.note }
    if (lease !== undefined && lease.value.owner !== owner) {
      return { kind: 'held', restMs: lease.endsAt - this.#now() }
    }
    this.leases.set(name, { value: { owner }, endsAt: this.#now() + leaseMs })
    return { kind: 'acquired' }
  }

  async publish(name: string, { owner, token, ageMs }: PublishRequest): Promise<PublishReply> {
    const lease = this.#living(this.leases, name)?.value
    const isOwner = lease?.owner === owner
    const present = this.#living(this.tokens, name)
    if (!isOwner && present !== undefined && this.#age(present) <= ageMs) return { kind: 'lost' }
    this.tokens.set(name, { value: token, endsAt: this.#now() + token.spanMs - ageMs })
    if (isOwner || lease?.owner === undefined) this.leases.delete(name)
    return { kind: 'published' }
  }

  async release(name: string, owner: string, note?: ReleaseNote): Promise<void> {
    const lease = this.#living(this.leases, name)?.value
    if (lease?.owner !== owner) return
    if (note === undefined) this.leases.delete(name)
    else this.leases.set(name, { value: { note: note.text }, endsAt: this.#now() + note.noteMs })
  }

  async forget(name: string): Promise<void> {
    this.tokens.delete(name)
    const lease = this.leases.get(name)?.value
    if (lease?.note !== undefined) this.leases.delete(name)
  }

  async permit(name: string, { calls, windowMs }: PermitRequest): Promise<PermitReply> {
    const limit = this.#limit(name)
    if (limit !== undefined) return { kind: 'limited', limit }
    const now = this.#now()
    const recent = (this.#calls.get(name) ?? []).filter((at) => at + windowMs > now)
    const [oldest = now] = recent
    if (recent.length >= calls) return { kind: 'wait', waitMs: oldest + windowMs - now }
    this.#calls.set(name, [...recent, now])
    return { kind: 'granted' }
  }

  async readBoard(name: string, since: string | undefined): Promise<Board | StoreError> {
    const from = since === undefined ? this.#purges.length : Number(since)
    const purges = this.#purges.slice(from).filter((purge) => purge.name === name)
    return {
      kind: 'ok',
      lifetime: this.#living(this.#lifetimes, name)?.value,
      limit: this.#limit(name),
      purges: purges.map(({ sealed, at }) => ({ sealed, ageMs: this.#now() - at })),
      until: String(this.#purges.length),
    }
  }

  async setLifetime(name: string, sealed: string): Promise<void> {
    this.#lifetimes.set(name, { value: sealed, endsAt: this.#now() + LIFETIME_MS })
  }

  async setLimit(name: string, sealed: string, limitMs: number): Promise<void> {
    if ((this.#limit(name)?.restMs ?? 0) < limitMs) {
      this.#limits.set(name, { value: sealed, endsAt: this.#now() + limitMs })
    }
  }

  async addPurge(name: string, sealed: string): Promise<void> {
    this.#purges.push({ name, sealed, at: this.#now() })
  }

  #limit(name: string): Limit | undefined {
    const limit = this.#living(this.#limits, name)
    return limit && { sealed: limit.value, restMs: limit.endsAt - this.#now() }
  }

  #age({ value, endsAt }: Timed<StoredToken>): number {
    return value.spanMs - (endsAt - this.#now())
  }

  #living<T>(values: Map<string, Timed<T>>, name: string): Timed<T> | undefined {
    const value = values.get(name)
    return value === undefined || value.endsAt <= this.#now() ? undefined : value
  }
}
