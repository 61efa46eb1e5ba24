/** The certificates that TLS trusts where further ones are configured: a list of our own replaces that of the runtime. */

import tls from 'node:tls'

/** Undefined leaves the runtime's own list in use. `further` is PEM. */
export function trustedCertificates(further: string | undefined): readonly string[] | undefined {
  if (further === undefined) return undefined
  return [...runtimeCertificates(), further]
}

/** Newer versions tell the whole list, NODE_EXTRA_CA_CERTS included; older ones only what they bring. */
function runtimeCertificates(): readonly string[] {
  const { getCACertificates } = tls as { getCACertificates?: () => string[] }
  return getCACertificates?.() ?? tls.rootCertificates
}
