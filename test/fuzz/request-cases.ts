/**
 * Damaged requests. What reaches the origin must be requests that were sent, by the letter, each with the one token of the
 * Org that it named; and what the client gets must be responses that are its own.
 */

import { valuesOf } from '../support/http-reader.ts'
import type { OriginRequest } from '../support/origin-connection.ts'
import { Arena, type Transcript } from './arena.ts'
import { fill, REQUESTS } from './corpus.ts'
import { type RequestRead, readAnswer, readRequests, readResponses, Violation } from './messages.ts'
import { mutate, randomFor } from './mutate.ts'

const POOLED = 64
const SETTINGS = {
  OAP_TOKENS_MAX_ORGS: '200000',
  OAP_TOKENS_LIFETIME: '1h',
  OAP_TOKENS_MINT_RATE: '100000',
  OAP_LISTEN_IDLE_TIMEOUT: '1s',
  OAP_LISTEN_HEADERS_TIMEOUT: '1s',
  OAP_ORIGIN_CONNECTIONS: `${POOLED - 32}`,
  OAP_ORIGIN_RESPONSE_TIMEOUT: '2s',
}

export interface RequestCase {
  readonly id: string
  readonly sent: string
  readonly pieces: readonly string[]
  /** What the origin may get to see, in this order. */
  readonly requests: readonly RequestRead[]
}

export async function requestCase(seed: number, index: number): Promise<RequestCase> {
  const random = randomFor(seed, index)
  const id = `case-${index}`
  const values = { id, org: `org-${index % 500}`, other: `other-${index % 500}` }
  const corpus = REQUESTS.map((text) => fill(text, values))
  const message = random.pick(corpus)
  const sent = random.chance(0.05) ? message : mutate(message, corpus, random)
  const cut = random.integer(0, sent.length)
  const pieces = random.chance(0.5) ? [sent] : [sent.slice(0, cut), sent.slice(cut)]
  return { id, sent, pieces, requests: await readRequests(sent) }
}

/** Long enough for an answer on a quiet machine. An answer that comes later is lost, which no case forbids. */
const QUIET_MS = 100

export async function startRequestArena(): Promise<Arena> {
  return await Arena.start(
    {
      script: async (request) => {
        await request.ended
        return { fields: ['X-Seen', `${request.method} ${request.target}`], content: `${request.target}` }
      },
      acceptsAnyToken: true,
    },
    SETTINGS,
  )
}

/** Runs these cases at once. Returns how many requests reached the origin. */
export async function runRequestCases(
  arena: Arena,
  cases: readonly RequestCase[],
  minted: Set<string>,
): Promise<number> {
  const evidence = { cases: cases.map(({ id, sent }) => ({ id, sent })) }
  const transcripts = await Promise.all(cases.map(({ pieces }) => arena.exchange(pieces, QUIET_MS)))
  for (const [i, transcript] of transcripts.entries()) await checkAnswer(arena, cases[i] as RequestCase, transcript)
  const probe = await arena.exchange([
    'GET /v2/probe HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: probe\r\nConnection: close\r\n\r\n',
  ])
  if ((await readAnswer(probe.received, 'GET', 'fin'))?.status !== 200)
    throw new Violation('the proxy does not serve', { probe, ...evidence })
  const requests = arena.service.requests.filter(({ target }) => target !== '/v2/probe')
  if (arena.service.origin.malformed.length > 0) {
    throw new Violation('bytes at the origin that are no request', {
      malformed: arena.service.origin.malformed,
      ...evidence,
    })
  }
  checkForwarded(arena, cases, requests)
  for (const { org } of arena.service.tokens.mints) {
    if (minted.has(org)) throw new Violation('a second mint for one Org', { org, ...evidence })
    minted.add(org)
    const isNamed = org === 'probe' || cases.some((each) => each.requests.some(({ orgs }) => orgs.includes(org)))
    if (!isNamed) throw new Violation('a mint for an Org that nobody named', { org, ...evidence })
  }
  arena.checkProcess(evidence)
  await arena.forget()
  return requests.length
}

async function checkAnswer(
  arena: Arena,
  { id, sent, requests }: RequestCase,
  { received, end }: Transcript,
): Promise<void> {
  arena.checkSecrets(received, 'a response', { id, sent, received })
  const methodOf = (i: number) => requests[i]?.method ?? 'GET'
  // Of what the parser refuses the proxy does not know the method; the connection ends with the answer, so content is harmless.
  const methodIfRefused = (i: number) => (i < requests.length - 1 ? methodOf(i) : 'GET')
  const responses =
    (await readResponses(received, methodOf, end)) ?? (await readResponses(received, methodIfRefused, end))
  if (responses === undefined) throw new Violation('not what HTTP calls responses', { id, sent, received })
  for (const response of responses) {
    const [seen] = valuesOf(response.fields, 'x-seen')
    if (seen !== undefined && !requests.some((each) => isSame(each, seen))) {
      throw new Violation('the response to a request of somebody else', { id, sent, received })
    }
  }
}

/** Every request at the origin is one that was sent, in its place, whole where it was whole, with its own token. */
function checkForwarded(arena: Arena, cases: readonly RequestCase[], requests: readonly OriginRequest[]): void {
  const next = new Map(cases.map((each) => [each, 0]))
  for (const request of requests) {
    const line = `${request.method} ${request.target}`
    const evidence = { line, fields: request.fields }
    if (request.values('authorization').length !== 1) throw new Violation('not exactly one Authorization', evidence)
    const org = arena.service.orgOf(request)
    const isOf = (sent: RequestRead) => isSame(sent, line) && sent.orgs.length === 1 && sent.orgs[0] === org
    const source = cases.find((each) => each.requests.slice(next.get(each)).some(isOf))
    if (source === undefined) {
      const read = cases.map(({ id, sent, requests: all }) => ({ id, sent, read: all }))
      throw new Violation('a request at the origin that nobody sent for this Org', { org, ...evidence, cases: read })
    }
    const at = source.requests.findIndex((sent, i) => i >= (next.get(source) ?? 0) && isOf(sent))
    next.set(source, at + 1)
    const sent = source.requests[at] as RequestRead
    if (request.state === 'complete' && request.content.toString('latin1') !== sent.content) {
      throw new Violation('content that was not sent so', { sent: source.sent, ...evidence })
    }
    if (request.values('x-org-id').length > 0) throw new Violation('X-Org-Id at the origin', evidence)
  }
}

/** The line that the origin gets for this request; an absolute target loses its authority. */
function isSame({ method, target }: RequestRead, line: string): boolean {
  const path = target.replace(/^https?:\/\/[^/?#]*/i, '')
  return line === `${method} ${path.startsWith('/') ? path : `/${path}`}`
}

export async function endRequestArena(arena: Arena): Promise<void> {
  await arena.checkDescriptors(POOLED)
  await arena.checkMemory()
}
