/**
 * Damaged messages for the parser alone, judged by Node's. Whatever ours accepts, Node's accepts with the same method, target,
 * fields, framing and content, but for methods that Node does not know, and two leniencies in responses. Every other difference
 * is a refusal of ours.
 */

import { METHODS } from 'node:http'
import { fieldLines } from '../../src/http1/field-list.ts'
import { MalformedMessage, type MalformedReason } from '../../src/http1/malformed.ts'
import { type RequestEvents, RequestParser } from '../../src/http1/request-parser.ts'
import { ResponseParser } from '../../src/http1/response-parser.ts'
import type { Random } from '../support/seed.ts'
import { fill, PARSER_REQUESTS, PARSER_RESPONSES, REQUESTS, RESPONSES } from './corpus.ts'
import { judgeRequests, judgeResponses, type Told, type Verdict } from './judges.ts'
import { Violation } from './messages.ts'
import { mutate, randomFor } from './mutate.ts'

export interface ParserResult {
  readonly cases: number
  /** Messages that both accepted, to the end. */
  readonly accepted: number
  /** Cases that Node's parser takes and ours refuses, by reason. */
  readonly stricter: Map<string, number>
}

const VALUES = { id: 'x', org: 'acme', other: 'globex' }
const REQUEST_SEEDS = [...REQUESTS, ...PARSER_REQUESTS].map((text) => fill(text, VALUES))
const RESPONSE_SEEDS = [...RESPONSES, ...PARSER_RESPONSES].map((text) => fill(text, VALUES))
const AT_ONCE = 200
/** As the default, and as Node's. */
const MAX_REQUEST_HEAD_BYTES = 16 * 1024

interface Ours extends Verdict {
  refusal: MalformedReason | undefined
  /** The last message is the last one of its connection. */
  closes: boolean
}

/** Reads the bytes in pieces that end at `cuts`, each in a buffer that is overwritten behind it. */
type Read = (bytes: Buffer, cuts: Iterable<number>) => Ours

/** `startsAt` gets where each request begins, or the empty lines before it, if it is given one piece. */
export function readRequests(bytes: Buffer, cuts: Iterable<number>, startsAt: number[] = []): Ours {
  const ours: Ours = { messages: [], refusal: undefined, closes: false }
  const events: RequestEvents = {
    requestHead: ({ method, target, minorVersion, rawFields, keepsAlive }) => {
      ours.messages.push({ start: `${method} ${target} 1.${minorVersion}`, rawFields, content: '', isComplete: false })
      // Behind these, Node reads no other request.
      ours.closes = !keepsAlive || method === 'CONNECT' || offersProtocol(rawFields)
    },
    messageContent: (octets, start, end) => add(ours, octets, start, end),
    messageEnd: () => {
      complete(ours)
      if (ours.closes) parser.stop()
    },
  }
  const parser = new RequestParser(events, MAX_REQUEST_HEAD_BYTES)
  feed(bytes, cuts, ours, (piece, end) => {
    for (let at = 0, before = -1; at < end && at !== before; ) {
      before = at
      startsAt.push(at)
      at = parser.read(piece, at, end)
    }
  })
  return ours
}

function offersProtocol(rawFields: readonly string[]): boolean {
  return rawFields.some((name, i) => i % 2 === 0 && name.toLowerCase() === 'upgrade')
}

export function readResponse(bytes: Buffer, cuts: Iterable<number>, method: string, isEnded: boolean): Ours {
  const ours: Ours = { messages: [], refusal: undefined, closes: false }
  let rest = ''
  const parser = new ResponseParser({
    responseHead: ({ status, reason, minorVersion, rawFields, lines }) => {
      if (lines !== fieldLines(rawFields))
        throw new Violation('lines that are not those of the fields', { lines, rawFields })
      ours.messages.push({
        start: `${status} ${reason} 1.${minorVersion}`,
        rawFields,
        content: '',
        isComplete: status === 101,
      })
    },
    messageContent: (octets, start, end) => add(ours, octets, start, end),
    messageEnd: () => complete(ours),
  })
  parser.expect(method === 'HEAD', true)
  feed(bytes, cuts, ours, (piece, end) => {
    const at = parser.read(piece, 0, end)
    rest += piece.toString('latin1', at, end)
  })
  if (isEnded && ours.refusal === undefined) parser.finish()
  const [message] = ours.messages
  if (message?.start.startsWith('101 ')) message.content = rest
  return ours
}

function add(ours: Ours, octets: Buffer, start: number, end: number): void {
  const message = ours.messages.at(-1)
  if (message === undefined || end <= start) throw new Error('content without a head, or none')
  message.content += octets.toString('latin1', start, end)
}

function complete(ours: Ours): void {
  const message = ours.messages.at(-1)
  if (message === undefined || message.isComplete) throw new Error('a second end')
  message.isComplete = true
}

function feed(bytes: Buffer, cuts: Iterable<number>, ours: Ours, read: (piece: Buffer, end: number) => void): void {
  try {
    const piece = Buffer.alloc(bytes.length + BEHIND.length)
    let from = 0
    for (const cut of cuts) {
      const end = cut - from
      if (end === 1) piece[0] = bytes[from] as number
      else bytes.copy(piece, 0, from, cut)
      // What lies behind a piece in a buffer does not belong to it.
      for (let i = 0; i < BEHIND.length; i++) piece[end + i] = BEHIND[i] as number
      read(piece, end)
      if (end > 1) piece.fill('!', 0, end)
      from = cut
    }
  } catch (error) {
    if (!(error instanceof MalformedMessage)) throw error
    ours.refusal = error.reason
  }
}

const BEHIND = Buffer.from('\r\n\r\n')

export function* everywhere(length: number): Generator<number> {
  for (let at = 1; at <= length; at++) yield at
}

/** Our reading with a method that Node knows in the place of each other one, and the bytes for it. */
function withKnownMethods(bytes: Buffer, ours: Ours): { bytes: Buffer; ours: Ours } {
  const methods = ours.messages.map(({ start }) => start.slice(0, start.indexOf(' ')))
  if (methods.every((method) => METHODS.includes(method))) return { bytes, ours }
  const startsAt: number[] = []
  readRequests(bytes, [bytes.length], startsAt)
  let text = bytes.toString('latin1')
  const messages = ours.messages.map((message, i) => ({ ...message, start: withKnown(methods[i], message.start) }))
  for (const [i, method] of [...methods.entries()].toReversed()) {
    const at = text.indexOf(method, startsAt[i])
    text = text.slice(0, at) + withKnown(method, text.slice(at))
  }
  return { bytes: Buffer.from(text, 'latin1'), ours: { ...ours, messages } }
}

function withKnown(method = '', text: string): string {
  return METHODS.includes(method) ? text : KNOWN_METHOD + text.slice(method.length)
}

const KNOWN_METHOD = 'PUT'

/** What ours makes of it, whole, in one random piece of two, and octet by octet: always the same. */
function readAllWays(bytes: Buffer, random: Random, read: Read): Ours {
  const whole = read(bytes, [bytes.length])
  const expected = JSON.stringify(whole)
  const cut = random.integer(0, bytes.length)
  for (const cuts of [[cut, bytes.length], everywhere(bytes.length)]) {
    const seen = read(bytes, cuts)
    if (JSON.stringify(seen) !== expected) {
      throw new Violation('cut otherwise, read otherwise', { bytes: bytes.toString('latin1'), cut, whole, seen })
    }
  }
  return whole
}

function makeCase(seeds: readonly string[], random: Random): Buffer {
  const message = random.pick(seeds)
  return Buffer.from(random.chance(0.05) ? message : mutate(message, seeds, random), 'latin1')
}

/** Cases `from` to `to` of a seed; the even ones are requests. Rejects with the first violation. */
export async function runParserCases(
  seed: number,
  from: number,
  to: number,
  total: ParserResult = { cases: 0, accepted: 0, stricter: new Map() },
): Promise<ParserResult> {
  let { cases, accepted } = total
  const { stricter } = total
  const count = (outcome: string | number) => {
    cases++
    if (typeof outcome === 'number') accepted += outcome
    else stricter.set(outcome, (stricter.get(outcome) ?? 0) + 1)
  }
  for (let first = from; first < to; first += AT_ONCE) {
    const indices = Array.from({ length: Math.min(AT_ONCE, to - first) }, (_, i) => first + i)
    const requests = indices.filter((i) => i % 2 === 0).map((i) => requestCase(seed, i))
    const responses = indices.filter((i) => i % 2 === 1).map((i) => responseCase(seed, i))
    const onRequests = await judgeRequests(requests.map(({ bytes }) => bytes))
    for (const [i, each] of requests.entries()) count(compareRequests(each.bytes, each.ours, onRequests[i] as Verdict))
    const onResponses = await judgeResponses(responses)
    for (const [i, each] of responses.entries()) count(await compareResponse(each, onResponses[i] as Verdict))
  }
  return { cases, accepted, stricter }
}

function requestCase(seed: number, index: number): { bytes: Buffer; ours: Ours } {
  const random = randomFor(seed, index)
  const bytes = makeCase(REQUEST_SEEDS, random)
  return withKnownMethods(bytes, readAllWays(bytes, random, readRequests))
}

interface ResponseCase {
  readonly bytes: Buffer
  readonly method: string
  readonly isEnded: boolean
  readonly ours: Ours
}

function responseCase(seed: number, index: number): ResponseCase {
  const random = randomFor(seed, index)
  const bytes = makeCase(RESPONSE_SEEDS, random)
  const method = random.pick(['GET', 'GET', 'GET', 'HEAD'])
  const isEnded = random.chance(0.5)
  const ours = readAllWays(bytes, random, (octets, cuts) => readResponse(octets, cuts, method, isEnded))
  return { bytes, method, isEnded, ours }
}

/** The reason if ours alone refuses; otherwise the number of messages that both accept. */
function compareRequests(bytes: Buffer, ours: Ours, judged: Verdict): string | number {
  const evidence = { bytes: bytes.toString('latin1'), ours, judged }
  const isTheirs = isRefused(judged)
  for (const [i, mine] of ours.messages.entries()) {
    const theirs = judged.messages[i]
    if (theirs === undefined) throw new Violation('a request that Node refuses', evidence)
    const isTunnel = mine.start.startsWith('CONNECT ')
    checkSame(mine, theirs, isTheirs || ours.refusal !== undefined, isTunnel, evidence)
  }
  if (ours.refusal !== undefined) return isTheirs ? 0 : ours.refusal
  if (ours.closes && ours.messages.at(-1)?.isComplete === true) return ours.messages.length
  // Ours refuses some faults only at the end of their line. Until then, it tells nothing.
  if (isTheirs) return 0
  if (judged.messages.length !== ours.messages.length) throw new Violation('not as many requests', evidence)
  return ours.messages.length
}

async function compareResponse(each: ResponseCase, judged: Verdict): Promise<string | number> {
  const { ours, bytes, method, isEnded } = each
  const [mine] = ours.messages
  const [theirs] = judged.messages
  const isTheirs = isRefused(judged) && theirs?.isComplete !== true
  const repaired = withoutLeniencies(bytes)
  if (isTheirs && !repaired.equals(bytes)) return compareRepaired(each, repaired)
  const evidence = { bytes: bytes.toString('latin1'), method, isEnded, ours, judged }
  if (mine !== undefined) {
    if (theirs === undefined) throw new Violation('a response that Node does not see', evidence)
    checkSame(mine, theirs, isTheirs || ours.refusal !== undefined, false, evidence)
  } else if (theirs !== undefined && ours.refusal === undefined)
    throw new Violation('a response that ours does not see', evidence)
  if (ours.refusal !== undefined) return isTheirs ? 0 : ours.refusal
  return mine?.isComplete === true ? 1 : 0
}

/** Ours reads the response as it would be without them, and so does Node. */
async function compareRepaired(each: ResponseCase, repaired: Buffer): Promise<string | number> {
  const { bytes, method, isEnded } = each
  const [judged] = await judgeResponses([{ bytes: repaired, method, isEnded }])
  const ours = readResponse(repaired, [repaired.length], method, isEnded)
  const outcome = await compareResponse({ bytes: repaired, method, isEnded, ours }, judged as Verdict)
  const evidence = { bytes: bytes.toString('latin1'), method, isEnded, ours: each.ours, repaired: ours }
  const isSame = JSON.stringify(each.ours.messages) === JSON.stringify(ours.messages)
  if (!isSame) throw new Violation('a leniency that means something', evidence)
  return typeof outcome === 'string' ? outcome : 'a leniency that Node does not have'
}

/** `isCut`: ours has refused what follows. */
function checkSame(mine: Told, theirs: Told, isCut: boolean, hasNoContent: boolean, evidence: object): void {
  const isSameHead = mine.start === theirs.start && JSON.stringify(mine.rawFields) === JSON.stringify(theirs.rawFields)
  if (!isSameHead) throw new Violation('another head', { ...evidence })
  if (hasNoContent) return
  if (mine.isComplete || !isCut) {
    if (mine.content !== theirs.content) throw new Violation('other content', { ...evidence })
    if (mine.isComplete !== theirs.isComplete) throw new Violation('another end', { ...evidence })
  } else if (!theirs.content.startsWith(mine.content)) throw new Violation('other content', { ...evidence })
}

function isRefused({ refusal }: Verdict): boolean {
  return refusal?.startsWith('HPE_') === true
}

/** Without what ours takes from responses: blanks before a colon, and anything beside the size of a chunk. */
function withoutLeniencies(bytes: Buffer): Buffer {
  let rest = bytes.toString('latin1')
  let text = ''
  let last = ''
  for (let isInterim = true; isInterim; ) {
    const headEnd = rest.indexOf('\r\n\r\n')
    const head = rest.slice(0, headEnd === -1 ? undefined : headEnd + 4)
    isInterim = headEnd !== -1 && /^HTTP\/1\.[01] 1(?!01)/.test(head)
    last = withoutBlanksBeforeColons(head)
    text += last
    rest = rest.slice(head.length)
  }
  // An interim response has no content, whatever it says.
  const isChunked = /\r\ntransfer-encoding:[\t ]*chunked/i.test(last) && !/^HTTP\/1\.[01] 101/.test(last)
  if (!isChunked) return Buffer.from(text + rest, 'latin1')
  for (let chunk = SIZE_LINE.exec(rest); chunk !== null; chunk = SIZE_LINE.exec(rest)) {
    const [line, size = ''] = chunk
    const end = line.length + Number.parseInt(size, 16) + 2
    text += `${size}\r\n`
    if (Number.parseInt(size, 16) === 0)
      return Buffer.from(text + withoutBlanksBeforeColons(`\r\n${rest.slice(line.length)}`).slice(2), 'latin1')
    text += rest.slice(line.length, end)
    rest = rest.slice(end)
  }
  return Buffer.from(text + rest.replace(CUT_SIZE_LINE, '$1'), 'latin1')
}

const SIZE_LINE = /^[\t ]*([0-9A-Fa-f]{1,16})[\t ]*(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n/
const CUT_SIZE_LINE = /^[\t ]*([0-9A-Fa-f]{0,16})[\t ]*(?:;[\t\x20-\x7e\x80-\xff]*)?(?=\r?$)/

function withoutBlanksBeforeColons(lines: string): string {
  return lines.replace(/\r\n([!#$%&'*+\-.^_`|~0-9A-Za-z]+)[\t ]+(?=:|$)/g, '\r\n$1')
}
