/** An app that sends its requests one after the other, and tells what became of each. */

import type { ClientPlan, RequestPlan } from '../story.ts'
import type { Endpoint, Network } from '../world/tcp.ts'
import type { World } from '../world/world.ts'
import { ContentCheck, contentOf } from './content.ts'
import { type Head, MessageReader } from './message.ts'
import { Tunnel } from './tunnel.ts'
import { Wire } from './wire.ts'

export const PROXY_PORT = 8_080
const DRIBBLE_MS = 300

export interface Outcome {
  readonly plan: RequestPlan
  /** Its first byte was given to the kernel. */
  readonly startedAt: number
  /** All of the request was given to the kernel. */
  isSent: boolean
  /** It got 100 (Continue). */
  isInvited: boolean
  /** Undefined if no head came. */
  status: number | undefined
  /** Of an error that the proxy made. */
  code: string | undefined
  /** Whose answer it says that it is. */
  answers: string | undefined
  content: ContentCheck | undefined
  problem: string
  /** `whole`; `broken`: visibly; `left`: the client did not wait for it. */
  end: 'whole' | 'broken' | 'left' | 'refused' | undefined
  endedAt: number
  /** How its connection ended, if the answer is broken. */
  how: 'end' | 'reset' | undefined
  /** The connection had carried a request before. */
  readonly isReused: boolean
  hasBytes: boolean
  /** The first try met the end of an idle connection. */
  isRetry: boolean
  closes: boolean
}

export class Client {
  readonly #world: World
  readonly #network: Network
  readonly #name: string
  readonly #plan: ClientPlan
  readonly #port: number
  readonly outcomes: Outcome[] = []
  readonly tunnels = new Map<string, Tunnel>()
  readonly faults: string[] = []
  #wire: Wire | undefined
  #next = 0
  #current: Outcome | undefined
  readonly #tunnelOn = new Map<Wire, Tunnel>()
  isDone = false
  /** So long it has sent parts of empty lines on an idle connection. */
  dribbledMs = 0

  constructor(world: World, network: Network, name: string, plan: ClientPlan, port = PROXY_PORT) {
    this.#world = world
    this.#port = port
    this.#network = network
    this.#name = name
    this.#plan = plan
    world.at(plan.at, () => this.#goOn())
  }

  #goOn(isRetry = false): void {
    const plan = this.#plan.requests[this.#next]
    if (plan === undefined) {
      this.isDone = true
      if (!this.#plan.stays) this.#drop()
      if (this.#plan.dribbles === true) this.#dribble()
      return
    }
    this.#next++
    this.#world.after(isRetry ? 0 : plan.afterMs, () => this.#send(plan, isRetry))
  }

  /** A part of an empty line, now and then. */
  #dribble(): void {
    const wire = this.#wire
    if (wire === undefined || wire.hasEnded) return
    wire.write(this.dribbledMs % (2 * DRIBBLE_MS) === 0 ? '\r' : '\n')
    this.dribbledMs += DRIBBLE_MS
    this.#world.after(DRIBBLE_MS, () => this.#dribble())
  }

  #drop(): void {
    this.#wire?.close()
    this.#wire = undefined
  }

  #send(plan: RequestPlan, isRetry: boolean): void {
    if (this.#wire !== undefined && !this.#wire.hasEnded) {
      this.#write(plan, this.#wire, true, isRetry)
      return
    }
    const endpoint: Endpoint = this.#network.connect(this.#name, '127.0.0.1', this.#port, (error) => {
      if (error === undefined) this.#write(plan, this.#open(endpoint), false, isRetry)
      else {
        endpoint.close()
        const outcome = this.#begin(plan, false, isRetry)
        outcome.end = 'refused'
        this.#finish(outcome)
      }
    })
  }

  #open(endpoint: Endpoint): Wire {
    // What comes on a connection that the client has left is nobody's.
    const isCurrent = () => this.#wire === wire
    const reader = new MessageReader(
      {
        head: (head) => !isCurrent() || this.#head(head, wire, reader),
        content: (bytes) => isCurrent() && this.#content(bytes),
        end: () => isCurrent() && this.#whole(),
        other: (bytes) => this.#tunnelOn.get(wire)?.received(bytes),
      },
      false,
    )
    const wire: Wire = new Wire(this.#world, endpoint, {
      data: (bytes) => {
        if (isCurrent() && this.#current !== undefined) this.#current.hasBytes = true
        try {
          reader.push(bytes)
        } catch (error) {
          this.faults.push(`${this.#name}: the proxy sent a malformed answer: ${error}`)
        }
      },
      ended: (how) => {
        const tunnel = this.#tunnelOn.get(wire)
        if (tunnel !== undefined) tunnel.ended(how)
        else if (isCurrent()) this.#ended(wire, reader, how)
        else wire.close()
      },
    })
    this.#wire = wire
    wire.begin()
    return wire
  }

  #begin(plan: RequestPlan, isReused: boolean, isRetry: boolean): Outcome {
    const outcome: Outcome = {
      plan,
      startedAt: this.#world.now,
      isSent: false,
      isInvited: false,
      status: undefined,
      code: undefined,
      answers: undefined,
      content: undefined,
      problem: '',
      end: undefined,
      endedAt: Number.POSITIVE_INFINITY,
      how: undefined,
      isReused,
      hasBytes: false,
      isRetry,
      closes: false,
    }
    this.outcomes.push(outcome)
    this.#current = outcome
    return outcome
  }

  #write(plan: RequestPlan, wire: Wire, isReused: boolean, isRetry: boolean): void {
    const outcome = this.#begin(plan, isReused, isRetry)
    const { content, leaves, socket, method } = plan
    this.#world.tell(this.#name, `${plan.id} ${method} org-${plan.org} ${content?.bytes ?? ''}`)
    const lines = [`${method} /v2/${plan.id} HTTP/1.1`, 'Host: localhost', `X-Org-Id: org-${plan.org}`]
    if (content?.isChunked === true) lines.push('Transfer-Encoding: chunked')
    else if (content !== undefined) lines.push(`Content-Length: ${content.bytes}`)
    if (content?.expects === true) lines.push('Expect: 100-continue')
    if (socket !== undefined)
      lines.push(
        'Upgrade: websocket',
        'Connection: Upgrade',
        'Sec-WebSocket-Version: 13',
        'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==',
      )
    if (leaves !== undefined) this.#world.after(leaves.afterMs, () => this.#leave(outcome, wire, leaves.how))
    wire.read(true, plan.readPace ?? { bytes: Number.POSITIVE_INFINITY, everyMs: 0 })
    wire.writePace = plan.writePace ?? { bytes: Number.POSITIVE_INFINITY, everyMs: 0 }
    const sendContent = () => {
      if (content === undefined || outcome.isSent || this.#current !== outcome) return
      const bytes = contentOf(`${plan.id}>`, content.bytes)
      if (content.isChunked) {
        const middle = Math.ceil(bytes.length / 2)
        for (const part of [bytes.subarray(0, middle), bytes.subarray(middle)]) {
          if (part.length > 0)
            wire.write(Buffer.concat([Buffer.from(`${part.length.toString(16)}\r\n`), part, Buffer.from('\r\n')]))
        }
        wire.write('0\r\n\r\n')
      } else wire.write(bytes)
      outcome.isSent = true
    }
    wire.write(`${lines.join('\r\n')}\r\n\r\n`)
    if (content === undefined) outcome.isSent = true
    else if (content.expects) {
      this.#continue = sendContent
      this.#world.after(content.isPatient === true ? 30_000 : 1_000, sendContent) // RFC 9110 §10.1.1: it need not wait for ever
    } else sendContent()
  }

  #continue: () => void = () => undefined

  #head({ start, fields }: Head, wire: Wire, reader: MessageReader): boolean {
    const outcome = this.#current
    const status = Number(start[1])
    if (outcome === undefined) {
      this.faults.push(`${this.#name}: an answer to nothing: ${status}`)
      return true
    }
    if (status === 100) {
      outcome.isInvited = true
      this.#continue()
      return false
    }
    const { plan } = outcome
    outcome.status = status
    outcome.answers = fields.get('x-answer')
    outcome.code = /details="(\w+)"/.exec(fields.get('proxy-status') ?? '')?.[1]
    outcome.closes = fields.get('connection')?.toLowerCase() === 'close'
    this.#world.tell(this.#name, `${plan.id} gets ${status} ${outcome.code ?? ''}`)
    if (status === 101 && plan.socket !== undefined) {
      outcome.end = 'whole'
      outcome.endedAt = this.#world.now
      this.#current = undefined
      reader.switch()
      const tunnel = new Tunnel(this.#world, wire, plan.id, 'client', plan.socket.client, plan.socket.service)
      this.#tunnelOn.set(wire, tunnel)
      this.tunnels.set(plan.id, tunnel)
      this.#wire = undefined
      tunnel.begin()
      // Its next request has another connection.
      this.#goOn()
      return true
    }
    if (outcome.answers !== undefined) outcome.content = new ContentCheck(`${plan.id}<`, plan.answer.bytes)
    return plan.method === 'HEAD' || status === 204 || status === 304
  }

  #content(bytes: Buffer): void {
    const content = this.#current?.content
    if (content === undefined) return
    content.push(bytes)
    if (content.wrongAt !== undefined) this.faults.push(`the content of an answer changed on its way: ${content}`)
  }

  #whole(): void {
    const outcome = this.#current
    if (outcome === undefined) return
    outcome.end = 'whole'
    this.#finish(outcome)
  }

  #ended(wire: Wire, reader: MessageReader, how: 'end' | 'reset'): void {
    if (how === 'end') reader.finish()
    const outcome = this.#current
    wire.close()
    this.#wire = undefined
    if (outcome === undefined) return
    outcome.how = how
    // An idle connection that the proxy closes while a request is on its way: the client sends it again.
    if (outcome.isReused && !outcome.hasBytes && outcome.plan.content === undefined && !outcome.isRetry) {
      outcome.end = 'refused'
      this.#current = undefined
      this.#next--
      this.#goOn(true)
      return
    }
    outcome.end = 'broken'
    this.#finish(outcome)
  }

  #leave(outcome: Outcome, wire: Wire, how: 'end' | 'close' | 'reset'): void {
    if (this.#current !== outcome || wire.isClosed) return
    this.#world.tell(this.#name, `${outcome.plan.id} leaves: ${how}`)
    if (how === 'end') wire.endpoint.shutdown()
    outcome.end = 'left'
    if (how === 'close') wire.close()
    if (how === 'reset') wire.reset()
    if (how === 'end') this.#world.after(3_000, () => wire.close())
    this.#wire = undefined
    this.#finish(outcome)
  }

  #finish(outcome: Outcome): void {
    outcome.endedAt = this.#world.now
    this.#current = undefined
    this.#world.tell(this.#name, `${outcome.plan.id} ${outcome.end} ${outcome.content ?? ''}`)
    // An answer that came before all of the request was sent: the rest of the request would be in the way of the next one.
    if (outcome.closes || (this.#wire !== undefined && this.#wire.pendingBytes > 0) || !outcome.isSent) this.#drop()
    this.#goOn()
  }

  /** The request that has no outcome yet. */
  get waiting(): Outcome | undefined {
    return this.#current
  }

  /** The story is over. */
  leave(): void {
    this.#drop()
    for (const tunnel of this.tunnels.values()) tunnel.leave()
  }
}
