/** What bytes mean by the letter of RFC 9112: the judge of what the proxy made of them. Texts are latin1. */

import {
  ByteReader,
  MalformedMessage,
  type RawResponse,
  readRequestContent,
  readRequestHead,
  readResponse,
  type StreamEnd,
  StreamEnded,
  valuesOf,
} from '../support/http-reader.ts'

/** What must never be and was. */
export class Violation extends Error {
  override readonly name = 'Violation'

  constructor(what: string, evidence: Readonly<Record<string, unknown>>) {
    super(`${what}\n${JSON.stringify(evidence, null, 2)}`)
  }
}

export interface RequestRead {
  readonly method: string
  readonly target: string
  /** Values of `X-Org-Id`. */
  readonly orgs: readonly string[]
  /** Undefined where the bytes end, or go wrong, inside it. */
  readonly content: string | undefined
}

/** The requests in these bytes, up to the first that is none. */
export async function readRequests(text: string): Promise<RequestRead[]> {
  const reader = ByteReader.of(text)
  const requests: RequestRead[] = []
  for (;;) {
    // RFC 9112 §2.2 asks a server to ignore an empty line.
    reader.take(/^[\r\n]*/.exec(reader.pending.toString('latin1'))?.[0].length ?? 0)
    const head = await unlessBroken(readRequestHead(reader, 'lenient'))
    if (head === undefined) return requests
    const { method, target, fields } = head
    const orgs = valuesOf(fields, 'x-org-id')
    const pieces: Buffer[] = []
    const trailers = await unlessBroken(readRequestContent(reader, head, (bytes) => pieces.push(bytes), 'lenient'))
    const content = trailers === undefined ? undefined : Buffer.concat(pieces).toString('latin1')
    requests.push({ method, target, orgs, content })
    if (content === undefined) return requests
  }
}

/**
 * All responses in these bytes, which the proxy wrote. `method` tells the method of the request that each belongs to.
 * Undefined: these are no responses.
 */
export async function readResponses(
  text: string,
  method: (index: number) => string,
  end: StreamEnd,
): Promise<RawResponse[] | undefined> {
  const reader = ByteReader.of(text, end)
  const responses: RawResponse[] = []
  while (reader.pending.length > 0) {
    const isBegun = 'HTTP/1.1 '.startsWith(reader.pending.toString('latin1', 0, 9))
    try {
      responses.push(await readResponse(reader, method(responses.length)))
    } catch (error) {
      if (error instanceof StreamEnded && isBegun) return responses
      if (error instanceof StreamEnded || error instanceof MalformedMessage) return undefined
      throw error
    }
  }
  return responses
}

/** The answer of a server to one request, as every client would take it; undefined if it is doubtful or not all there. */
export async function readAnswer(text: string, method: string, end: StreamEnd): Promise<RawResponse | undefined> {
  const response = await unlessBroken(readResponse(ByteReader.of(text, end), method, 'lenient'))
  return response?.isComplete === true ? response : undefined
}

async function unlessBroken<T>(read: Promise<T>): Promise<T | undefined> {
  try {
    return await read
  } catch (error) {
    if (error instanceof StreamEnded || error instanceof MalformedMessage) return undefined
    throw error
  }
}
