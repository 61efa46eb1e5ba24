/**
 * A careful client, as one would write it by hand: mints when it has no token or a settled one is rejected, waits for a young
 * token, and repeats every request. The proxy is measured beside it.
 */

const SETTLE_MS = 5_000
const FIRST_WAIT_MS = 200
const MAX_WAIT_MS = 1_000
const COOLDOWN_MS = 10_000
const MAX_TRIES = 13

interface Held {
  readonly name: string
  readonly at: number
  isDead: boolean
}

interface OrgState {
  current?: Held
  former?: Held | undefined
  minting?: Promise<void> | undefined
  uselessAt: number
}

export interface ClientWorld {
  now(): number
  sleep(delayMs: number): Promise<void>
  mint(org: number): Promise<{ readonly name: string; readonly at: number }>
}

export class CarefulClient {
  readonly #world: ClientWorld
  readonly #rejected: ReadonlySet<number>
  readonly #orgs = new Map<number, OrgState>()

  constructor(world: ClientWorld, rejected: ReadonlySet<number>) {
    this.#world = world
    this.#rejected = rejected
  }

  /** Sends the request as often as it takes. Resolves with the status that the caller sees. */
  async request(org: number, send: (token: string) => Promise<number>): Promise<number> {
    const world = this.#world
    const state = this.#orgs.get(org) ?? { uselessAt: Number.NEGATIVE_INFINITY }
    this.#orgs.set(org, state)
    if (state.current === undefined) await this.#mint(org, state)
    const startedAt = world.now()
    let token = state.current
    let waitMs = FIRST_WAIT_MS
    let hasMinted = false
    for (let tries = 1; token !== undefined; tries += 1) {
      const status = await send(token.name)
      if (!this.#rejected.has(status)) return status
      const { current, former } = state
      if (tries === MAX_TRIES || current === undefined) return status
      if (token !== current) {
        token.isDead = true
        token = current
      } else if (world.now() - current.at < SETTLE_MS) {
        if (world.now() - startedAt > SETTLE_MS + 1_000) return status
        if (tries === 1 && former !== undefined && !former.isDead) token = former
        else {
          await world.sleep(waitMs)
          waitMs = Math.min(waitMs * 2, MAX_WAIT_MS)
          token = state.current
        }
      } else {
        if (hasMinted) state.uselessAt = world.now()
        if (hasMinted || world.now() - state.uselessAt < COOLDOWN_MS) return status
        current.isDead = true
        await this.#mint(org, state)
        hasMinted = true
        if (state.current === current) return status
        token = state.current
      }
    }
    return 0
  }

  #mint(org: number, state: OrgState): Promise<void> {
    state.minting ??= this.#world
      .mint(org)
      .then(({ name, at }) => {
        if (state.current?.name === name) return
        state.former = state.current
        state.current = { name, at, isDead: false }
      })
      .finally(() => {
        state.minting = undefined
      })
    return state.minting
  }
}
