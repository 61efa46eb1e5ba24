/** One caller of the configuration: its credential and its rights. */

import type { RoutePattern } from '../http/target.ts'
import type { Secret } from '../secret.ts'
import type { KeySet } from './key-set.ts'

export interface CallerRule {
  /** In the log, the metrics and on the status page. */
  readonly name: string
  readonly credential: SocketCredential | KeyCredential | JwtCredential
  /** Empty: none. */
  readonly orgs: readonly OrgRule[]
  /** Empty: all routes that the listener forwards. */
  readonly routes: readonly RoutePattern[]
  /** Most requests of this caller at once; undefined: only the listener's limit applies. */
  readonly maxInFlight: number | undefined
}

/** Every process that may open the socket counts as the caller. */
export interface SocketCredential {
  readonly kind: 'socket'
  readonly path: string
}

/** Any of these keys, in `X-Proxy-Key`. */
export interface KeyCredential {
  readonly kind: 'key'
  readonly keys: readonly Secret[]
}

/** A JWT with these claims, in `X-Proxy-Key`. */
export interface JwtCredential {
  readonly kind: 'jwt'
  readonly issuer: string
  readonly audience: string
  readonly subject: string
  readonly keySet: KeySetSource
}

export type KeySetSource =
  | { readonly kind: 'file'; readonly path: string; readonly keySet: KeySet }
  | {
      readonly kind: 'url'
      readonly url: string
      /** Further CA certificates in PEM, for the host of the URL. */
      readonly caCertificates: string | undefined
      /** File with a bearer token for the request, read again for each. */
      readonly tokenFile: string | undefined
    }

/** An org id, or with `isPrefix` the beginning of one. */
export interface OrgRule {
  readonly id: string
  readonly isPrefix: boolean
}
