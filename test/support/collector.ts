/**
 * A collector of OpenTelemetry that takes traces over HTTP as JSON, and is stricter than real ones: a member that the protocol
 * (opentelemetry-proto 1.x, `trace.proto`, in its JSON form) does not have, a wrong type or an impossible value fails.
 */

import { createServer } from 'node:http'
import { text } from 'node:stream/consumers'
import { z } from 'zod'
import { Changes } from './changes.ts'
import { listening } from './listening.ts'

const traceId = z.string().regex(/^(?!0{32})[0-9a-f]{32}$/)
const spanId = z.string().regex(/^(?!0{16})[0-9a-f]{16}$/)
/** Around now, in nanoseconds since the epoch. */
const instant = z
  .string()
  .regex(/^[1-9]\d{18}$/)
  .transform(BigInt)
  .refine((at) => Math.abs(Number(at / 1_000_000n) - Date.now()) < 60_000, 'is not about now')
const count = z.int().min(0)
const value = z.union([
  z.strictObject({ stringValue: z.string() }).transform(({ stringValue }) => stringValue),
  z.strictObject({ intValue: z.int() }).transform(({ intValue }) => intValue),
])
const attributes = z
  .array(z.strictObject({ key: z.string().min(1), value }))
  .refine((all) => new Set(all.map(({ key }) => key)).size === all.length, 'has a key twice')
  .transform((all) => Object.fromEntries(all.map(({ key, value }) => [key, value])))
const link = z.strictObject({
  traceId,
  spanId,
  attributes,
  droppedAttributesCount: z.literal(0),
  flags: count.optional(),
})
const span = z
  .strictObject({
    traceId,
    spanId,
    parentSpanId: spanId.optional(),
    flags: count,
    name: z.string().min(1),
    kind: z.int().min(1).max(5),
    startTimeUnixNano: instant,
    endTimeUnixNano: instant,
    attributes,
    droppedAttributesCount: z.literal(0),
    events: z.array(z.never()),
    droppedEventsCount: z.literal(0),
    links: z.array(link),
    droppedLinksCount: z.literal(0),
    status: z.strictObject({ code: count.max(2) }),
  })
  .refine(({ startTimeUnixNano: from, endTimeUnixNano: to }) => from <= to, 'ends before it begins')
const message = z.strictObject({
  resourceSpans: z.array(
    z.strictObject({
      resource: z.strictObject({ attributes, droppedAttributesCount: z.literal(0) }),
      scopeSpans: z.array(
        z.strictObject({ scope: z.strictObject({ name: z.string(), version: z.string() }), spans: z.array(span) }),
      ),
    }),
  ),
})

export type CollectedSpan = z.output<typeof span>

export const SpanKind = { server: 2, client: 3 } as const
export const STATUS_ERROR = 2

/** What it does with a call. `hang`: it never answers. */
export type Behaviour = number | 'hang'

export async function startCollector(behaviour: Behaviour = 200) {
  const spans: CollectedSpan[] = []
  const resources: Record<string, unknown>[] = []
  const received: string[] = []
  const problems: unknown[] = []
  const changes = new Changes()
  const server = createServer(async (request, response) => {
    received.push(JSON.stringify(request.rawHeaders), await text(request))
    const { success, data, error } = message.safeParse(JSON.parse(received.at(-1) ?? ''))
    if (request.method !== 'POST' || request.url !== '/v1/traces') problems.push(request.url)
    if (request.headers['content-type'] !== 'application/json') problems.push(request.headers)
    if (!success) problems.push(error.issues)
    else if (behaviour === 200) {
      for (const { resource, scopeSpans } of data.resourceSpans) {
        resources.push(resource.attributes)
        spans.push(...scopeSpans.flatMap((scope) => scope.spans))
      }
    }
    changes.notify()
    if (behaviour === 'hang') return
    response.writeHead(behaviour, { 'content-type': 'application/json' }).end('{}')
  })
  const listener = await listening(server)
  return {
    endpoint: `http://127.0.0.1:${listener.port}/v1/traces`,
    /** Those that were taken. */
    spans,
    resources,
    /** Heads and contents of all calls. */
    received,
    /** What is wrong with a call. Must stay empty. */
    problems,
    until: (condition: () => boolean, what: string) => changes.until(condition, what),
    [Symbol.asyncDispose]: () => listener[Symbol.asyncDispose](),
  }
}
