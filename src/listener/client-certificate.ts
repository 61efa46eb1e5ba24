/** The certificate that a client showed when its TLS connection opened, and the names in it. */

import type { X509Certificate } from 'node:crypto'
import type { TLSSocket } from 'node:tls'

export interface ClientCertificate {
  /** `spiffe://…` and `dns:…` of the subject alternative name. Empty if the certificate was not verified. */
  readonly names: readonly string[]
  /** Milliseconds since the epoch. */
  readonly expiresAt: number
  readonly isVerified: boolean
  /** Why it names nobody. For the log. */
  readonly problem?: string | undefined
}

/** Undefined if the client showed none. */
export function certificateOf(socket: TLSSocket): ClientCertificate | undefined {
  // Node calls a resumed session of TLS 1.3 authorized even if it has no certificate, so the certificate counts.
  const certificate = socket.getPeerX509Certificate()
  if (certificate === undefined) return undefined
  const expiresAt = Date.parse(certificate.validTo)
  if (!socket.authorized) {
    const problem = `certificate not verified: ${socket.authorizationError}`
    return { names: [], expiresAt, isVerified: false, problem }
  }
  return { expiresAt, isVerified: true, ...namesOf(certificate) }
}

/**
 * `URI:spiffe://a/b`, `DNS:"a, b"`: Node quotes a value, as JSON, if it holds anything that could be read as a separator. It
 * writes `<unsupported>` for the kinds of names that it cannot read.
 */
const ENTRY = /(?:^|, )([A-Za-z\d ]+):("(?:[^"\\]|\\.)*"|[^,"]*)(?=, |$)/gy
const UNSUPPORTED = '<unsupported>'

/**
 * Returns the names as the configuration writes them: `spiffe://…`, and `dns:…` in lower case. A certificate with several
 * URIs is no SPIFFE identity (X509-SVID §2), so none of them counts. A wildcard stands for no name. If any part cannot be read,
 * nothing counts: it may be the second URI.
 */
export function namesOf({
  subjectAltName,
}: Pick<X509Certificate, 'subjectAltName'>): Pick<ClientCertificate, 'names' | 'problem'> {
  if (subjectAltName === undefined) return { names: [], problem: 'certificate without alternative names' }
  const entries = [...subjectAltName.matchAll(ENTRY)]
  const isRead = entries.reduce((length, [text]) => length + text.length, 0) === subjectAltName.length
  if (!isRead || entries.some(([, , value]) => value === UNSUPPORTED)) {
    return { names: [], problem: 'certificate with an unknown kind of name' }
  }
  const valuesOf = (kind: string) => entries.flatMap(([, type, value = '']) => (type === kind ? [unquoted(value)] : []))
  const uris = valuesOf('URI')
  const hosts = valuesOf('DNS')
  const usable = hosts.filter((name) => !name.includes('*')).map((name) => `dns:${name.toLowerCase()}`)
  const names = uris.length === 1 ? [...uris.filter((uri) => ABSOLUTE_URI.test(uri)), ...usable] : usable
  if (names.length > 0) return { names }
  if (uris.length > 1) return { names, problem: 'certificate with several URIs' }
  return { names, problem: hosts.length > 0 ? 'certificate for a wildcard' : 'certificate without a URI or a DNS name' }
}

const ABSOLUTE_URI = /^[a-z][a-z0-9+.-]*:\/\//

function unquoted(value: string): string {
  return value.startsWith('"') ? String(JSON.parse(value)) : value
}
