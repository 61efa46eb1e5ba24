/** The names in a client certificate that can make it a caller's. */

import type { X509Certificate } from 'node:crypto'

/** `URI:spiffe://a/b`, `DNS:"a, b"`: Node quotes a value, as JSON, if it holds anything that could be read as a separator. */
const ENTRY = /(?:^|, )([A-Za-z ]+):("(?:[^"\\]|\\.)*"|[^,"]*)(?=, |$)/gy

/**
 * Returns the names as the configuration writes them: `spiffe://…`, and `dns:…` in lower case. A certificate with several
 * URIs is no SPIFFE identity (X509-SVID §2), so none of them counts. A wildcard stands for no name.
 */
export function certificateNames({ subjectAltName = '' }: Pick<X509Certificate, 'subjectAltName'>): readonly string[] {
  const entries = [...subjectAltName.matchAll(ENTRY)]
  const valuesOf = (kind: string) => entries.flatMap(([, type, value = '']) => (type === kind ? [unquoted(value)] : []))
  const uris = valuesOf('URI').filter((uri) => /^[a-z][a-z0-9+.-]*:\/\//.test(uri))
  const hosts = valuesOf('DNS').filter((name) => !name.includes('*'))
  return [...(valuesOf('URI').length === 1 ? uris : []), ...hosts.map((name) => `dns:${name.toLowerCase()}`)]
}

function unquoted(value: string): string {
  return value.startsWith('"') ? String(JSON.parse(value)) : value
}
