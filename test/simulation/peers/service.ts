/** The service and its token endpoint, as the story has them. It knows which tokens are good, and remembers all that it was asked. */

import type { AnswerPlan, MintTrouble, RequestPlan, Story } from '../story.ts'
import type { Endpoint, Network } from '../world/tcp.ts'
import type { World } from '../world/world.ts'
import { ContentCheck, chunksOf, contentOf } from './content.ts'
import { type Head, MessageReader } from './message.ts'
import { Tunnel } from './tunnel.ts'
import { Wire } from './wire.ts'

export const SERVICE_PORT = 9_000
const CALM_IDLE_MS = 60_000
const SURPLUS = 'HTTP/1.1 200 OK\r\nx-answer: surplus\r\ncontent-length: 0\r\n\r\n'

export interface IssuedToken {
  readonly value: string
  readonly org: number
  /** The process that has called, and its connection. */
  readonly by: string
  readonly issuedAt: number
  /** Its call came. */
  readonly calledAt: number
  readonly endsAt: number
  isRevoked: boolean
}

/** Each time that a request came. */
export interface Attempt {
  readonly plan: RequestPlan
  readonly at: number
  /** Undefined: nobody has issued it. */
  readonly token: IssuedToken | undefined
  /** It was accepted, and the request carried out. */
  readonly isAccepted: boolean
  readonly content: ContentCheck | undefined
  isContentWhole: boolean
  /** All of the answer went to the kernel. */
  isAnswered: boolean
  /** All of it has come to the kernel of the proxy, whatever follows. */
  hasArrived: boolean
  answeredAt: number
  /** The service broke it off, by its script. */
  isBroken: boolean
  /** Its connection had carried a request before. */
  readonly isReused: boolean
  /** For so long its connection was open when it came. */
  readonly waitedMs: number
  /** Its connection has ended. */
  goneAt: number
}

export interface MintCall {
  readonly org: number
  readonly by: string
  readonly at: number
  endedAt: number
  /** It was answered, or its connection has ended. */
  overAt: number
  readonly trouble: MintTrouble | 'unauthorized' | undefined
}

export class Service {
  readonly world: World
  readonly story: Story
  readonly tokens: IssuedToken[] = []
  readonly attempts: Attempt[] = []
  readonly mints: MintCall[] = []
  /** What no plan explains. */
  readonly faults: string[] = []
  readonly violations: [oracle: string, text: string][] = []
  /** Of a connection that was open: a fault of the network or of the script that may have cost a request. */
  readonly closedAt: number[] = []
  readonly tunnels = new Map<string, Tunnel>()
  /** Open connections that carry requests, and those that were open at once. */
  readonly connections = new Set<ServiceConnection>()
  mostConnections = 0
  readonly plans = new Map<string, RequestPlan>()
  /** Requests that met an answer to nothing on their way: nobody can tell it from theirs. */
  readonly poisoned = new Set<string>()
  /** What the endpoint accepts. */
  secret = 'first-secret'
  /** It accepts this one, too. */
  formerSecret: string | undefined
  /** The story is over: it does all at once, and well. */
  isCalm = false
  /** It accepts the App no more. */
  appRevokedAt = Number.POSITIVE_INFINITY
  #lastToken = 0

  constructor(world: World, network: Network, story: Story) {
    this.world = world
    this.story = story
    for (const client of story.clients) for (const plan of client.requests) this.plans.set(plan.id, plan)
    const accepted = (endpoint: Endpoint) => void new ServiceConnection(this, endpoint)
    network.listen({ address: '127.0.0.1', port: SERVICE_PORT, accepted })
  }

  troubleAt(org: number): MintTrouble | undefined {
    if (this.isCalm) return undefined
    const { now } = this.world
    return this.story.tokens.troubles.find(
      (trouble) => now >= trouble.from && now < trouble.to && (trouble.org ?? org) === org,
    )?.kind
  }

  issue({ org, at: calledAt, by }: MintCall): IssuedToken {
    const { livesMs, hasOneLive, keepsMs = Number.POSITIVE_INFINITY } = this.story.tokens
    const held = this.tokens.findLast((token) => token.org === org)
    if (held !== undefined && !held.isRevoked && held.endsAt - this.world.now > keepsMs) return held
    if (hasOneLive) for (const token of this.tokens) if (token.org === org) token.isRevoked = true
    const { now } = this.world
    const lifeMs = this.isCalm ? 3_600_000 : (livesMs[org] ?? 3_600_000)
    const token = {
      value: `token-${org}-${++this.#lastToken}`,
      org,
      by,
      issuedAt: now,
      calledAt,
      endsAt: now + lifeMs,
      isRevoked: false,
    }
    this.tokens.push(token)
    return token
  }

  revoke(org: number): void {
    for (const token of this.tokens) if (token.org === org) token.isRevoked = true
  }

  isGood({ org, isRevoked, issuedAt, endsAt }: IssuedToken): boolean {
    const { now } = this.world
    const { deaf } = this.story.tokens
    if (deaf?.org === org && now >= deaf.from && now < deaf.to) return false
    return !isRevoked && now < endsAt && (this.isCalm || now >= issuedAt + this.story.tokens.lagMs)
  }
}

interface Revoking {
  readonly service: Service
  readonly story: {
    readonly tokens: Pick<Story['tokens'], 'hasOneLive'>
    readonly operator: readonly { readonly what: string; readonly at: number; readonly org?: number | undefined }[]
  }
}

/** Until when the service takes it. */
export function goodUntil({ service, story }: Revoking, { org, issuedAt, endsAt }: IssuedToken): number {
  const revokes = story.operator.filter((step) => step.what === 'revoke' && step.org === org && step.at >= issuedAt)
  const next = service.tokens.find((token) => token.org === org && token.issuedAt > issuedAt)
  const replacedAt = story.tokens.hasOneLive && next !== undefined ? next.issuedAt : endsAt
  return Math.min(endsAt, replacedAt, ...revokes.map(({ at }) => at))
}

class ServiceConnection {
  readonly #service: Service
  readonly #wire: Wire
  readonly #reader: MessageReader
  #attempt: Attempt | undefined
  #respond: (() => void) | undefined
  #isCall = false
  /** The one that is not answered. */
  #call: MintCall | undefined
  #requests = 0
  #takeIdleBack: () => void = () => undefined
  #tunnel: Tunnel | undefined
  #hasRequest = false
  /** Where an answer to nothing began, among all octets. */
  #strayAt: number | undefined
  /** It reads no further request. */
  #isClosing = false
  readonly #openedAt: number

  constructor(service: Service, endpoint: Endpoint) {
    this.#service = service
    this.#openedAt = service.world.now
    this.#reader = new MessageReader(
      {
        head: (head) => this.#head(head),
        content: (bytes) => this.#content(bytes),
        end: () => this.#requestEnded(),
        other: (bytes) => this.#tunnel?.received(bytes),
      },
      true,
    )
    this.#wire = new Wire(service.world, endpoint, {
      data: (bytes) => {
        try {
          this.#reader.push(bytes)
        } catch (error) {
          service.faults.push(`the proxy sent a malformed request: ${error}`)
        }
      },
      ended: (how) => this.#ended(how),
    })
    service.connections.add(this)
    service.mostConnections = Math.max(service.mostConnections, service.connections.size)
    this.#startIdling()
    this.#wire.begin()
  }

  #ended(how: 'end' | 'reset'): void {
    if (this.#tunnel !== undefined) {
      this.#tunnel.ended(how)
      return
    }
    this.#close()
  }

  #close(how: 'close' | 'reset' = 'close'): void {
    if (this.#wire.isClosed) return
    this.#service.connections.delete(this)
    if (this.#call !== undefined) this.#call.overAt = this.#service.world.now
    this.#service.closedAt.push(this.#service.world.now)
    if (this.#attempt !== undefined) this.#attempt.goneAt = this.#service.world.now
    this.#takeIdleBack()
    if (how === 'close') this.#wire.close()
    else this.#wire.reset()
  }

  /** For its first request, it gives a connection more time. */
  #startIdling(): void {
    const { isCalm, story, world } = this.#service
    const { idleMs, firstIdleMs = CALM_IDLE_MS } = story.service
    const keptMs = this.#requests === 0 ? firstIdleMs : idleMs
    this.#takeIdleBack = world.after(isCalm ? CALM_IDLE_MS : keptMs, () => this.#close())
  }

  #head({ start, fields }: Head): boolean {
    this.#takeIdleBack()
    const [method = '', target = ''] = start
    const service = this.#service
    if (this.#isClosing) return true
    if (this.#hasRequest) service.faults.push(`a request came before the last was answered: ${target}`)
    this.#hasRequest = true
    this.#requests++
    const call = /^\/v2\/orgs\/org-(\d+)\/access$/.exec(target)
    this.#isCall = call !== null
    if (call !== null) {
      this.#mint(Number(call[1]), fields)
      return false
    }
    const plan = service.plans.get(target.slice('/v2/'.length))
    if (plan === undefined) {
      service.faults.push(`a request that nobody sent: ${method} ${target}`)
      this.#close('reset')
      return true
    }
    if (this.#strayAt !== undefined) {
      // The two have crossed, unless the proxy wrote although bytes had come.
      const { arrived = 0 } = this.#wire.endpoint.peer?.whenWrote(this.#reader.startAt) ?? {}
      if (arrived > this.#strayAt)
        service.violations.push([
          'the answer is that request’s',
          `${plan.id} was sent though an answer to nothing had come`,
        ])
      service.poisoned.add(plan.id)
      this.#close('reset')
      return true
    }
    this.#receive(plan, fields)
    return false
  }

  // ---- the token endpoint

  #mint(org: number, fields: Head['fields']): void {
    const service = this.#service
    const { world, story } = service
    const [appId, secret] = Buffer.from((fields.get('authorization') ?? '').slice('Basic '.length), 'base64')
      .toString()
      .split(':')
    const isAccepted = service.isCalm || secret === service.secret || secret === service.formerSecret
    const isKnown = appId === 'app' && isAccepted
    const trouble = service.troubleAt(org)
    const call: MintCall = {
      org,
      by: this.#wire.endpoint.peer?.name ?? '',
      at: world.now,
      endedAt: Number.POSITIVE_INFINITY,
      overAt: Number.POSITIVE_INFINITY,
      trouble: isKnown ? trouble : 'unauthorized',
    }
    service.mints.push(call)
    this.#call = call
    world.tell('endpoint', `mint org-${org} ${call.trouble ?? 'ok'}`)
    const [least, most] = service.isCalm ? [0, 1] : story.tokens.answerMs
    const answer = (status: number, content: string, more = '') => {
      call.endedAt = call.overAt = world.now
      this.#call = undefined
      this.#write(`HTTP/1.1 ${status} X\r\ncontent-length: ${content.length}\r\n${more}\r\n${content}`)
      this.#answered()
    }
    this.#respond = () => {
      world.after(world.network.between(least, most), () => {
        if (this.#wire.isClosed) return
        if (!isKnown) answer(401, '{}')
        else if (trouble === undefined) {
          const { value, endsAt } = service.issue(call)
          const stated = story.tokens.isStated ? `,"expires_in":${(endsAt - world.now) / 1_000}` : ''
          answer(200, `{"orgAccessToken":"${value}"${stated}}`)
        } else if (trouble === 'refuse') answer(403, '{}')
        else if (trouble === 'error') answer(500, '{}')
        else if (trouble === 'credentials') answer(401, '{}')
        else if (trouble === 'limit') answer(429, '{}', 'retry-after: 1\r\n')
        else if (trouble === 'garbage') answer(200, '<html>')
        else if (trouble === 'cut') {
          call.endedAt = world.now
          this.#write('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{')
          this.#close()
        }
      })
    }
  }

  // ---- requests

  #receive(plan: RequestPlan, fields: Head['fields']): void {
    const service = this.#service
    const { world } = service
    const value = (fields.get('authorization') ?? '').slice('Bearer '.length)
    const token = service.tokens.find((issued) => issued.value === value)
    const isAccepted = token !== undefined && token.org === plan.org && service.isGood(token)
    const content = plan.content && new ContentCheck(`${plan.id}>`, plan.content.bytes)
    const attempt: Attempt = {
      plan,
      at: world.now,
      token,
      isAccepted,
      content,
      isContentWhole: false,
      isAnswered: false,
      hasArrived: false,
      answeredAt: Number.POSITIVE_INFINITY,
      isBroken: false,
      isReused: this.#requests > 1,
      waitedMs: world.now - this.#openedAt,
      goneAt: Number.POSITIVE_INFINITY,
    }
    this.#attempt = attempt
    service.attempts.push(attempt)
    world.tell('service', `${plan.id} ${plan.method} by ${value} ${isAccepted ? 'accepted' : 'rejected'}`)
    if (fields.has('x-org-id')) service.faults.push(`${plan.id}: X-Org-Id went on`)
    const { answer } = plan
    if (!isAccepted) {
      this.#respond = () => {
        if (answer.rejection !== undefined) {
          this.#rejectWithoutEnd(attempt, answer.rejection)
          return
        }
        this.#write(
          `HTTP/1.1 ${service.story.tokens.rejectsWith ?? 401} Rejected\r\ncontent-length: 9\r\n${this.#idleLine}\r\nrejected\n`,
        )
        attempt.isAnswered = true
        this.#answered()
      }
      if (answer.rejectsAt === 'head' && plan.content !== undefined) this.#respondSoon()
    } else {
      this.#respond = () => this.#answer(attempt)
      if (answer.when === 'head' && plan.content !== undefined) this.#respondSoon()
    }
  }

  #rejectWithoutEnd(attempt: Attempt, { sends, pace }: NonNullable<AnswerPlan['rejection']>): void {
    const { world, story } = this.#service
    this.#write(`HTTP/1.1 ${story.tokens.rejectsWith ?? 401} Rejected\r\ncontent-length: 1000000\r\n\r\n`)
    this.#wire.writePace = pace
    this.#write(Buffer.alloc(sends, 'r'))
    attempt.isAnswered = true
    attempt.isBroken = true
    attempt.answeredAt = world.now
  }

  #respondSoon(): void {
    const respond = this.#respond
    this.#respond = undefined
    const { afterMs } = this.#attempt?.plan.answer ?? { afterMs: 0 }
    this.#service.world.after(this.#isCall ? 0 : afterMs, () => this.#wire.isClosed || respond?.())
  }

  #content(bytes: Buffer): void {
    const attempt = this.#attempt
    const { content } = attempt ?? {}
    if (attempt === undefined || content === undefined || this.#isClosing) return
    content.push(bytes)
    if (content.wrongAt !== undefined) this.#service.faults.push(`content changed on its way: ${content}`)
    const isMiddle = attempt.isAccepted && attempt.plan.answer.when === 'middle'
    if (isMiddle && content.bytes * 2 >= (attempt.plan.content?.bytes ?? 0) && this.#respond !== undefined)
      this.#respondSoon()
  }

  #requestEnded(): void {
    if (this.#isClosing) return
    const attempt = this.#attempt
    if (attempt !== undefined && !this.#isCall) {
      attempt.isContentWhole = true
      if (attempt.content !== undefined && !attempt.content.isWhole)
        this.#service.faults.push(`content that the client did not send so: ${attempt.content}`)
    }
    if (this.#respond !== undefined) this.#respondSoon()
    else this.#mayGoOn()
  }

  get #idleLine(): string {
    const { tellsIdle, idleMs } = this.#service.story.service
    return tellsIdle ? `keep-alive: timeout=${Math.floor(idleMs / 1_000)}\r\n` : ''
  }

  #answer(attempt: Attempt): void {
    const { plan } = attempt
    const { answer, socket } = plan
    const service = this.#service
    if (answer.hangs) {
      attempt.isBroken = true
      if (answer.drips === 'interims') this.#writeOn('HTTP/1.1 102 Processing\r\n\r\n', 50)
      if (answer.drips === 'fields') {
        this.#write('HTTP/1.1 200 OK\r\n')
        this.#writeOn(`x-more: ${'x'.repeat(1_000)}\r\n`, 50)
      }
      return
    }
    if (socket !== undefined && answer.status === 200) {
      this.#write('HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n')
      service.world.tell('service', `${plan.id} 101`)
      attempt.isAnswered = true
      this.#reader.switch()
      const tunnel = new Tunnel(service.world, this.#wire, plan.id, 'service', socket.service, socket.client)
      this.#tunnel = tunnel
      service.tunnels.set(plan.id, tunnel)
      service.connections.delete(this)
      tunnel.begin()
      return
    }
    if (answer.cut?.at === -1) {
      attempt.isBroken = true
      this.#close(answer.cut.how === 'reset' ? 'reset' : 'close')
      return
    }
    const hasNoContent = plan.method === 'HEAD' || answer.status === 204 || answer.status === 304
    const content = hasNoContent ? Buffer.alloc(0) : contentOf(`${plan.id}<`, answer.bytes)
    const closes = answer.afterwards === 'announced close' || (answer.framing === 'end' && !hasNoContent)
    const lines = [`HTTP/1.1 ${answer.status} X`, `x-answer: ${plan.id}`]
    if (closes) lines.push('connection: close')
    if (!closes && this.#idleLine !== '') lines.push(this.#idleLine.trim())
    if (answer.status !== 204 && answer.framing === 'length')
      lines.push(`content-length: ${hasNoContent ? answer.bytes : content.length}`)
    if (answer.framing === 'chunked' && !hasNoContent) lines.push('transfer-encoding: chunked')
    const isChunked = answer.framing === 'chunked' && !hasNoContent
    const sent = answer.cut === undefined ? content : content.subarray(0, answer.cut.at)
    const interims = 'HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n'.repeat(answer.interims)
    const { cut, stray } = answer
    const isStrayJoined = answer.afterwards === 'surplus' && stray?.afterMs === 0
    const behind = cut?.how === 'malformed' ? 'no chunk\r\n' : isStrayJoined ? stray.text : ''
    const wire = this.#wire
    this.#write(`${interims}${lines.join('\r\n')}\r\n\r\n`)
    if (answer.pace !== undefined) wire.writePace = answer.pace
    const pieces = isChunked ? chunksOf(sent) : [sent]
    if (isChunked && cut === undefined) pieces.push(Buffer.from('0\r\n\r\n'))
    if (behind !== '') pieces.push(Buffer.concat([pieces.pop() ?? Buffer.alloc(0), Buffer.from(behind)]))
    for (const piece of pieces) this.#write(piece)
    if (isStrayJoined) this.#strayAt = wire.writtenBytes + wire.pendingBytes - behind.length
    whenWritten(wire, () => {
      wire.writePace = { bytes: Number.POSITIVE_INFINITY, everyMs: 0 }
      attempt.answeredAt = service.world.now
      if (cut !== undefined) {
        attempt.isBroken = true
        // Of others, the proxy sees to the end.
        if (cut.how === 'close' || cut.how === 'reset') this.#close(cut.how)
        return
      }
      attempt.isAnswered = true
      service.world.tell('service', `${plan.id} ${answer.status} ${sent.length}`)
      const { afterwards } = answer
      const how = afterwards === 'reset' ? 'reset' : closes || afterwards === 'close' ? 'close' : undefined
      attempt.hasArrived = how === undefined
      if (how === undefined) {
        if (afterwards === 'surplus') this.#surplus(stray)
        else this.#answered()
        return
      }
      if (attempt.isContentWhole) {
        attempt.hasArrived = how === 'close'
        this.#close(how)
        return
      }
      // It has answered early, and closes before it has read all: the kernel sends a reset, which may overtake the answer.
      this.#isClosing = true
      if (answer.stopsReading) wire.read(false)
      service.world.after(service.world.network.between(0, 100), () => {
        attempt.hasArrived = wire.endpoint.unsentBytes === 0
        this.#close(how)
      })
    })
  }

  /** A while later, if no request has come by then. */
  #surplus(stray: AnswerPlan['stray']): void {
    this.#answered()
    const { world } = this.#service
    const { text = SURPLUS, isEndless = false, afterMs = world.network.between(0, 300) } = stray ?? {}
    world.after(afterMs, () => {
      if (this.#hasRequest || this.#wire.isClosed) return
      if (this.#strayAt === undefined) {
        this.#strayAt = this.#wire.writtenBytes + this.#wire.pendingBytes
        this.#write(text)
      }
      if (isEndless) this.#writeOn(text, 1)
    })
  }

  /** Again and again, until the connection ends. */
  #writeOn(text: string, everyMs: number): void {
    if (this.#wire.isClosed || this.#service.isCalm) return
    if (this.#wire.pendingBytes === 0) this.#write(text)
    this.#service.world.after(everyMs, () => this.#writeOn(text, everyMs))
  }

  #write(bytes: Buffer | string): void {
    this.#wire.write(bytes)
  }

  #answered(): void {
    this.#hasRequest = false
    this.#respond = undefined
    this.#mayGoOn()
  }

  /** Both request and answer are over. */
  #mayGoOn(): void {
    if (this.#hasRequest || this.#wire.isClosed) return
    this.#takeIdleBack()
    this.#startIdling()
  }
}

function whenWritten(wire: Wire, then: () => void): void {
  if (wire.pendingBytes === 0) then()
  else {
    wire.onWritten = () => {
      wire.onWritten = () => undefined
      then()
    }
  }
}
