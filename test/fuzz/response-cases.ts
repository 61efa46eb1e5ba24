/**
 * Damaged responses of the origin. The client must get what the origin said, or an error of the proxy, or a visible break:
 * nothing cut or doubtful looks whole, and nothing of it comes up in the answer to another request.
 */

import { setTimeout as sleep } from 'node:timers/promises'
import { type RawResponse, valuesOf } from '../support/http-reader.ts'
import type { OriginScript } from '../support/origin-connection.ts'
import { Arena, type Transcript } from './arena.ts'
import { fill, RESPONSES } from './corpus.ts'
import { readAnswer, readResponses, Violation } from './messages.ts'
import { mutate, randomFor } from './mutate.ts'

const POOLED = 8
const SETTINGS = {
  OAP_TOKENS_LIFETIME: '1h',
  OAP_TOKENS_REJECTED_STATUSES: '499',
  OAP_ORIGIN_CONNECTIONS: `${POOLED}`,
  OAP_ORIGIN_RESPONSE_TIMEOUT: '2s',
  OAP_ORIGIN_IDLE_TIMEOUT: '2s',
}

export interface ResponseCase {
  readonly id: string
  readonly method: string
  readonly pieces: readonly string[]
  /** What the origin does with the connection when it has written them. */
  readonly ends: 'fin' | 'reset' | 'nothing'
}

export async function responseCase(seed: number, index: number): Promise<ResponseCase> {
  const random = randomFor(seed, index)
  const corpus = RESPONSES.map((text) => fill(text, { id: `case-${index}` }))
  const message = random.pick(corpus)
  const bytes = random.chance(0.05) ? message : mutate(message, corpus, random)
  const cut = random.integer(0, bytes.length)
  const method = random.pick(['GET', 'GET', 'HEAD', 'POST', 'DELETE'])
  // Bytes behind a response that come late are the answer to the next request for all that HTTP/1.1 can tell: they come at once.
  const isWhole = (await readAnswer(bytes.slice(0, cut), method, 'reset')) !== undefined
  const pieces = isWhole || random.chance(0.5) ? [bytes] : [bytes.slice(0, cut), bytes.slice(cut)]
  const isFinal = (await readAnswer(bytes, method, 'reset')) !== undefined
  // What is not whole keeps everybody waiting for the idle timeout: now and then is enough.
  const ends = random.chance(isFinal ? 0.6 : 0.01) ? 'nothing' : random.pick(['fin', 'fin', 'reset'] as const)
  return { id: `case-${index}`, method, pieces, ends }
}

export interface ResponseArena {
  readonly arena: Arena
  readonly plans: Map<string, ResponseCase>
}

export async function startResponseArena(): Promise<ResponseArena> {
  const plans = new Map<string, ResponseCase>()
  const script: OriginScript = async (request, connection) => {
    const plan = plans.get(request.target.slice('/v2/'.length))
    if (plan === undefined) return { content: `for ${request.target}` }
    await request.ended
    for (const [i, piece] of plan.pieces.entries()) {
      if (i > 0) await sleep(0)
      connection.write(piece)
    }
    if (plan.ends === 'fin') connection.end()
    if (plan.ends === 'reset') connection.reset()
    return undefined
  }
  return { arena: await Arena.start({ script }, SETTINGS), plans }
}

/** Runs these cases at once, each followed by a request that must get its own answer. */
export async function runResponseCases(
  { arena, plans }: ResponseArena,
  cases: readonly ResponseCase[],
): Promise<number> {
  for (const each of cases) plans.set(each.id, each)
  await Promise.all(cases.map((each) => runOne(arena, each)))
  const evidence = { cases }
  for (const { method, id } of cases) {
    const attempts = arena.service.requests.filter(({ target }) => target === `/v2/${id}`).length
    if (attempts > (method === 'POST' ? 1 : 2)) throw new Violation('carried out too often', { attempts, id, method })
  }
  const requests = arena.service.requests.length
  if (arena.service.requests.some((request) => request.values('authorization').length !== 1)) {
    throw new Violation('not exactly one Authorization', evidence)
  }
  arena.checkProcess(evidence)
  await arena.forget()
  plans.clear()
  return requests
}

async function runOne(arena: Arena, each: ResponseCase): Promise<void> {
  const { id, method } = each
  const send = (target: string, verb: string) => {
    const content = verb === 'POST' ? 'hello' : ''
    const lines = ['Host: localhost', 'X-Org-Id: acme', `Content-Length: ${content.length}`, 'Connection: close']
    return arena.exchange([`${verb} ${target} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${content}`])
  }
  const transcript = await send(`/v2/${id}`, method)
  await checkAnswer(each, transcript)
  arena.checkSecrets(transcript.received, 'a response', { each })
  for (let i = 0; i < 2; i++) {
    const probe = await send(`/v2/probe/${id}/${i}`, 'GET')
    const [answer] = (await readResponses(probe.received, () => 'GET', probe.end)) ?? []
    if (answer?.status !== 200 || String(answer.content) !== `for /v2/probe/${id}/${i}`) {
      throw new Violation('a good request did not get its own answer', { each, probe, log: arena.lastLines })
    }
  }
}

async function checkAnswer(each: ResponseCase, { received, end }: Transcript): Promise<void> {
  const evidence = { each, received, end }
  const responses = await readResponses(received, () => each.method, end)
  if (responses === undefined || responses.length > 1) throw new Violation('not one response', evidence)
  const [response] = responses
  if (response === undefined) {
    if (received !== '' || end === 'fin') throw new Violation('no response, and no break', evidence)
    return
  }
  if (!response.isComplete || isProblem(response)) return
  const written = each.pieces.join('')
  const meant = await readAnswer(written, each.method, each.ends === 'fin' ? 'fin' : 'reset')
  if (meant === undefined) throw new Violation('what was not whole looks whole', evidence)
  if (meant.status !== response.status || !meant.content.equals(response.content)) {
    throw new Violation('not what the origin said', { ...evidence, meant })
  }
}

function isProblem({ fields }: RawResponse): boolean {
  return valuesOf(fields, 'proxy-status').some((value) => value.startsWith('org-access-proxy; error='))
}

export async function endResponseArena({ arena }: ResponseArena): Promise<void> {
  await arena.checkDescriptors(2 * POOLED)
  await arena.checkMemory()
}
