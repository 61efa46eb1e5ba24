/** A request as the gateway takes it: checked, stripped of what the client may not say, ready but for its credential. */

import type { OrgId } from '../http/org-id.ts'

export interface AdmittedRequest {
  readonly method: string
  /** Undefined where the request goes as the bare App. */
  readonly orgId: OrgId | undefined
  /** Origin-form, with the prefix of the base URL. */
  readonly target: string
  /** As the client sent it, without the query: for the log. */
  readonly path: string
  /** Flat list of all that goes to the origin, `Host`, `Via` and `X-Request-Id` included; only `Authorization` is missing. */
  readonly fields: string[]
  readonly requestId: string
  /** Declared octets of content; undefined where none is declared. */
  readonly contentLength: number | undefined
  readonly isChunked: boolean
  readonly expectsContinue: boolean
  /** True where an `Upgrade` was dropped and the connection cannot carry another request. */
  readonly mustClose: boolean
  readonly isWebSocket: boolean
}

export function hasContent(request: AdmittedRequest): boolean {
  return request.isChunked || (request.contentLength !== undefined && request.contentLength > 0)
}
