/** A request that was admitted: its fields are those that go to the origin, and only its credential is missing. */

import type { OrgId } from './org-id.ts'

export interface AdmittedRequest {
  readonly method: string
  /** Undefined if the request goes as the bare App. */
  readonly orgId: OrgId | undefined
  /** Undefined if no callers are configured. */
  readonly caller: { readonly name: string } | undefined
  /** Origin-form, with the prefix of the base URL. */
  readonly target: string
  /** As the client sent it, without the query. For the log. */
  readonly path: string
  /** Flat list of everything that goes to the origin, with `Host`, `Via` and `X-Request-Id`. Only `Authorization` is missing. */
  readonly fields: string[]
  readonly requestId: string
  /** Of `traceparent`. */
  readonly traceId: string | undefined
  /** The declared length in octets. Undefined if none is declared. */
  readonly contentLength: number | undefined
  readonly hasContent: boolean
  readonly expectsContinue: boolean
  readonly isWebSocket: boolean
}
