/** The certificates that TLS trusts when `origin.caFile` adds some: a list of ours replaces the runtime's. */

import tls, { type SecureContext } from 'node:tls'

/**
 * Returns a context that trusts `further` (PEM) and the runtime's certificates, or undefined, which leaves the runtime's in
 * use. Make it once for all connections: reading some 140 certificates takes tens of milliseconds and a mebibyte.
 */
export function contextTrusting(further: string | undefined): SecureContext | undefined {
  if (further === undefined) return undefined
  return tls.createSecureContext({ ca: [...runtimeCertificates(), further] })
}

/** Node 22.15 and newer return the whole list, NODE_EXTRA_CA_CERTS included. Older versions return only the bundled one. */
function runtimeCertificates(): readonly string[] {
  const { getCACertificates } = tls as { getCACertificates?: () => string[] }
  return getCACertificates?.() ?? tls.rootCertificates
}
