/** What TLS trusts where further certificates are configured: a list of our own replaces that of the runtime. */

import tls, { type SecureContext } from 'node:tls'

/**
 * Undefined leaves the runtime's own list in use. `further` is PEM. To be made once and used for all connections: to read
 * the some 140 certificates takes tens of milliseconds and a mebibyte.
 */
export function contextTrusting(further: string | undefined): SecureContext | undefined {
  if (further === undefined) return undefined
  return tls.createSecureContext({ ca: [...runtimeCertificates(), further] })
}

/** Newer versions tell the whole list, NODE_EXTRA_CA_CERTS included; older ones only what they bring. */
function runtimeCertificates(): readonly string[] {
  const { getCACertificates } = tls as { getCACertificates?: () => string[] }
  return getCACertificates?.() ?? tls.rootCertificates
}
