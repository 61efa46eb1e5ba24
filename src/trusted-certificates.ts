/** The certificates of TLS with the service: those that are trusted, and the one that is shown. */

import { constants } from 'node:crypto'
import { readFileSync } from 'node:fs'
import tls, { type SecureContext } from 'node:tls'

/**
 * Returns a context that trusts `further` (PEM) and, unless there are to be no others, the runtime's certificates, and shows `shown`; or undefined, which leaves
 * the runtime's in use. Make it once for all connections: reading some 140 certificates takes tens of milliseconds and a
 * mebibyte.
 */
export function contextTrusting(
  further: string | undefined,
  shown?: { readonly cert: string; readonly key: string },
  others: 'others too' | 'no others' = 'others too',
): SecureContext | undefined {
  if (further === undefined && shown === undefined) return undefined
  if (last !== undefined && shown === undefined && last.further === further && last.others === others)
    return last.context
  const trusted = further === undefined || others === 'no others' ? [] : runtimeCertificates()
  const context = tls.createSecureContext({
    // Without the last, only a root would be trusted, not an intermediate that `further` holds.
    ...(further !== undefined && { ca: [...trusted, further], allowPartialTrustChain: true }),
    ...(shown ?? NO_RENEGOTIATION),
  })
  if (shown === undefined) last = { further, others, context }
  return context
}

/** Most often, all services that a process calls have the same CA. */
let last: { readonly further: string | undefined; readonly others: string; readonly context: SecureContext } | undefined

/** Each renegotiation is a handshake more. Only old servers that ask for a certificate late have a reason to begin one. */
export const NO_RENEGOTIATION = { secureOptions: constants.SSL_OP_NO_RENEGOTIATION } as const

/** Node 22.15 and newer return the whole list, NODE_EXTRA_CA_CERTS included. Older versions return only the bundled one. */
function runtimeCertificates(): readonly string[] {
  const { getCACertificates } = tls as { getCACertificates?: () => string[] }
  return getCACertificates?.() ?? [...tls.rootCertificates, ...extraCertificates()]
}

/** Node warns of a file that it cannot use, and goes on without it. */
function extraCertificates(): string[] {
  const { NODE_EXTRA_CA_CERTS: path } = process.env
  if (!path) return []
  try {
    const pem = readFileSync(path, 'latin1')
    tls.createSecureContext({ ca: pem })
    return [pem]
  } catch {
    return []
  }
}
