/** An app that sends its requests one after the other, and tells what became of each. */

import type { ClientPlan, RequestPlan } from '../story.ts'
import type { Endpoint, Network } from '../world/tcp.ts'
import type { World } from '../world/world.ts'
import { ContentCheck, chunksOf, contentOf } from './content.ts'
import { type Head, MessageReader } from './message.ts'
import { Tunnel } from './tunnel.ts'
import { Wire } from './wire.ts'

export const PROXY_PORT = 8_080
const DRIBBLE_MS = 300
/** The most that is read behind a request in flight, and what one or two reads may bring with it. */
const SURPLUS_BYTES = 4 * 64 * 1024
/** A connection that the proxy has ended stays open for two seconds at most. And some room. */
const LINGER_MS = 5_000
const DRIPS = 40
/** A request that was sent ahead gets its answer or the end of its connection behind the answer before it. And some room. */
const AHEAD_MS = 700

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
  /** Of the bytes of the answer. */
  takenBytes: number
  /** The first octet of content was given to the kernel, at this place. */
  contentFrom: number | undefined
  /** It has sent all that it will, and more is owed. */
  silentAt: number | undefined
  /** Where what is of no use behind it begins. */
  surplusFrom: number | undefined
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
  readonly violations: [oracle: string, text: string][] = []
  #wire: Wire | undefined
  #next = 0
  /** When requests behind the current one were written already. */
  #ahead: number[] = []
  /** The current one was written behind another, and has been the next one since then. */
  #nextSince: number | undefined
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
    if (this.#plan.keepsOpen === undefined) this.#wire?.close()
    this.#wire = undefined
    this.#ahead = []
  }

  /** The proxy has ended its side, and this one does not end. */
  #keepOpen(wire: Wire): void {
    const peer = wire.endpoint.peer
    this.#world.after(LINGER_MS, () => {
      if (peer?.isClosed === false)
        this.violations.push(['a connection that is over ends', `${this.#name}: ${wire.endpoint.name} is still open`])
    })
    for (let i = 1; i <= DRIPS && this.#plan.keepsOpen === 'dripping'; i++)
      this.#world.after(i * DRIBBLE_MS, () => wire.write('x'))
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
        if (isCurrent()) this.#countTaken(wire, bytes)
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
        else if (this.#plan.keepsOpen === undefined) wire.close()
        else this.#keepOpen(wire)
      },
    })
    this.#wire = wire
    wire.begin()
    return wire
  }

  #begin(plan: RequestPlan, isReused: boolean, isRetry: boolean, startedAt = this.#world.now): Outcome {
    this.#nextSince = undefined
    const outcome: Outcome = {
      plan,
      startedAt,
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
      takenBytes: 0,
      contentFrom: undefined,
      silentAt: undefined,
      surplusFrom: undefined,
    }
    this.outcomes.push(outcome)
    this.#current = outcome
    return outcome
  }

  #write(plan: RequestPlan, wire: Wire, isReused: boolean, isRetry: boolean): void {
    const outcome = this.#begin(plan, isReused, isRetry)
    const { content, leaves, takes, surplus } = plan
    this.#world.tell(this.#name, `${plan.id} ${plan.method} org-${plan.org} ${content?.bytes ?? ''}`)
    if (leaves !== undefined) this.#world.after(leaves.afterMs, () => this.#leave(outcome, wire, leaves.how))
    wire.read(takes?.bytes !== 0, plan.readPace ?? { bytes: Number.POSITIVE_INFINITY, everyMs: 0 })
    if (takes !== undefined) this.#world.after(takes.forMs, () => this.#takeAgain(outcome, wire))
    wire.writePace = plan.writePace ?? { bytes: Number.POSITIVE_INFINITY, everyMs: 0 }
    const sendContent = () => {
      if (content === undefined || outcome.isSent || this.#current !== outcome) return
      outcome.contentFrom ??= wire.writtenBytes + wire.pendingBytes
      const { stopsAt } = content
      if (stopsAt !== undefined) {
        outcome.silentAt ??= this.#world.now
        if (outcome.silentAt === this.#world.now) wire.write(Buffer.concat(contentPieces(plan)).subarray(0, stopsAt))
        return
      }
      for (const piece of contentPieces(plan)) wire.write(piece)
      outcome.isSent = true
    }
    wire.write(headText(plan))
    if (content === undefined) outcome.isSent = true
    else if (content.expects && content.isImpatient !== true) {
      this.#continue = sendContent
      this.#world.after(content.isPatient === true ? 30_000 : 1_000, sendContent) // RFC 9110 §10.1.1: it need not wait for ever
    } else sendContent()
    if (surplus !== undefined) {
      outcome.surplusFrom = wire.writtenBytes + wire.pendingBytes
      wire.writePace = surplus.pace
      wire.write(surplus.text.repeat(surplus.bytes / surplus.text.length))
    }
    const { pipelinesAfterMs } = this.#plan
    if (pipelinesAfterMs !== undefined) this.#world.after(pipelinesAfterMs, () => this.#writeAhead(outcome, wire))
  }

  /** The next request goes out, though this one is not answered. */
  #writeAhead(outcome: Outcome, wire: Wire): void {
    const plan = this.#plan.requests[this.#next + this.#ahead.length]
    if (plan === undefined || this.#current !== outcome || wire.isClosed || wire.hasEnded) return
    this.#world.tell(this.#name, `${plan.id} behind ${outcome.plan.id}`)
    this.#ahead.push(this.#world.now)
    wire.write(headText(plan))
    if (plan.content !== undefined) for (const piece of contentPieces(plan)) wire.write(piece)
  }

  #countTaken(wire: Wire, { length }: Buffer): void {
    const outcome = this.#current
    if (outcome === undefined) return
    const { bytes: most = Number.POSITIVE_INFINITY } = outcome.plan.takes ?? {}
    const before = outcome.takenBytes
    outcome.takenBytes += length
    if (before < most && outcome.takenBytes >= most) wire.read(false)
  }

  /** It looks again, and must find that the proxy has gone. */
  #takeAgain(outcome: Outcome, wire: Wire): void {
    if (this.#current !== outcome || wire.isClosed) return
    if (wire.endpoint.peer?.isClosed === false)
      this.violations.push(['who takes nothing is let go', `${outcome.plan.id}: the proxy still waits`])
    wire.read(true)
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
      const { read = 0 } = wire.endpoint.peer?.whenWrote(reader.startAt) ?? {}
      if (outcome.contentFrom !== undefined && read > outcome.contentFrom)
        this.violations.push([
          '100 only before content',
          `${outcome.plan.id}: after ${read - outcome.contentFrom} octets`,
        ])
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
    if (this.#plan.keepsOpen === undefined) wire.close()
    else this.#keepOpen(wire)
    if (outcome !== undefined) this.#judgeSurplus(outcome, wire)
    this.#wire = undefined
    this.#ahead = []
    if (outcome === undefined) return
    if (!outcome.hasBytes && this.#world.now - (this.#nextSince ?? this.#world.now) > AHEAD_MS)
      this.violations.push(['a request ahead is answered, or its connection ends', outcome.plan.id])
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

  #judgeSurplus({ plan, surplusFrom }: Outcome, wire: Wire): void {
    const read = (wire.endpoint.peer?.readBytes ?? 0) - (surplusFrom ?? Number.POSITIVE_INFINITY)
    if (read > SURPLUS_BYTES) this.violations.push(['nobody reads without end', `${plan.id}: ${read} octets behind it`])
  }

  #finish(outcome: Outcome): void {
    if (this.#wire !== undefined) this.#judgeSurplus(outcome, this.#wire)
    outcome.endedAt = this.#world.now
    this.#current = undefined
    this.#world.tell(this.#name, `${outcome.plan.id} ${outcome.end} ${outcome.content ?? ''}`)
    // An answer that came before all of the request was sent: the rest of the request would be in the way of the next one.
    if (outcome.closes || (this.#wire !== undefined && this.#wire.pendingBytes > 0) || !outcome.isSent) this.#drop()
    if (this.#ahead.length === 0) this.#goOn()
    else this.#nextWasWritten()
  }

  /** Its answer may lie in the same bytes. */
  #nextWasWritten(): void {
    const plan = this.#plan.requests[this.#next++]
    if (plan === undefined) return
    this.#begin(plan, true, false, this.#ahead.shift()).isSent = true
    this.#nextSince = this.#world.now
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

function headText({ id, org, method, content, socket, isHttp10 }: RequestPlan): string {
  const lines = [`${method} /v2/${id} HTTP/1.${isHttp10 === true ? 0 : 1}`, 'Host: localhost', `X-Org-Id: org-${org}`]
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
  return `${lines.join('\r\n')}\r\n\r\n`
}

function contentPieces({ id, content }: RequestPlan): Buffer[] {
  if (content === undefined) return []
  const bytes = contentOf(`${id}>`, content.bytes)
  return content.isChunked ? [...chunksOf(bytes), Buffer.from('0\r\n\r\n')] : [bytes]
}
