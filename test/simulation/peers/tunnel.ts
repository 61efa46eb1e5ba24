/** One end of a WebSocket, as its script has it. The bytes tell whose they are. */

import type { SidePlan } from '../story.ts'
import type { World } from '../world/world.ts'
import { ContentCheck, contentOf } from './content.ts'
import type { Wire } from './wire.ts'

/** One that reads late waits so long. */
const LATE_MS = 4_000

export class Tunnel {
  readonly #world: World
  readonly #wire: Wire
  readonly #name: string
  readonly plan: SidePlan
  readonly #sent: Buffer
  readonly received_: ContentCheck
  /** How the other side ended. */
  endedBy: 'end' | 'reset' | undefined
  endedAt: number | undefined
  /** It ended its own side, by its script. */
  hasLeft: 'end' | 'close' | 'reset' | undefined
  leftAt: number | undefined
  readonly openedAt: number

  constructor(world: World, wire: Wire, id: string, side: 'client' | 'service', plan: SidePlan, other: SidePlan) {
    this.#world = world
    this.#wire = wire
    this.#name = `${side} ${id}`
    this.plan = plan
    this.openedAt = world.now
    const [mine, theirs] = side === 'client' ? ['}', '{'] : ['{', '}']
    this.#sent = contentOf(`${id}${mine}`, plan.sends)
    this.received_ = new ContentCheck(`${id}${theirs}`, other.sends)
  }

  begin(): void {
    const { plan } = this
    const wire = this.#wire
    wire.writePace = plan.pace ?? { bytes: Number.POSITIVE_INFINITY, everyMs: 0 }
    if (plan.reads !== 'all') wire.read(false)
    if (plan.reads === 'late') this.#world.after(plan.lateMs ?? LATE_MS, () => wire.read(true))
    wire.onWritten = () => {
      const { ends } = plan
      if (ends !== undefined) this.#world.after(ends.afterMs, () => this.#leave(ends.how))
    }
    wire.write(this.#sent)
    if (this.#sent.length === 0) wire.onWritten()
  }

  received(bytes: Buffer): void {
    this.received_.push(bytes)
  }

  ended(how: 'end' | 'reset'): void {
    this.endedBy = how
    this.endedAt = this.#world.now
    this.#world.tell('tunnel', `${this.#name} sees ${how} after ${this.received_}`)
    // Who is told of an end ends, too (RFC 6455 §7.1.1).
    if (how === 'reset') this.#wire.close()
    else this.#wire.end()
  }

  #leave(how: 'end' | 'close' | 'reset'): void {
    if (this.#wire.isClosed) return
    this.hasLeft = how
    this.leftAt = this.#world.now
    this.#world.tell('tunnel', `${this.#name} ${how} after sending ${this.#wire.writtenBytes}`)
    if (how === 'end') this.#wire.end()
    else if (how === 'close') this.#wire.close()
    else this.#wire.reset()
  }

  /** The story is over. */
  leave(): void {
    if (!this.#wire.isClosed) this.#leave('close')
  }
}
