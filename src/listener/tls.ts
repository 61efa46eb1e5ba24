/** TLS of the listener: its certificate, which a reload replaces, and the certificates of its clients. */

import type { X509Certificate } from 'node:crypto'
import { createServer, type Server, type ServerOptions } from 'node:https'
import { createSecureContext, type TLSSocket, type TlsOptions } from 'node:tls'
import { askForCertificates } from '../http/node-internals.ts'

/** The content of the files, all in PEM. */
export interface TlsMaterial {
  /** The certificate of the listener, and its chain. */
  readonly certificates: string
  readonly key: { reveal(): string }
  /** If set, clients are asked for a certificate, which these CAs must have issued. */
  readonly clientCaCertificates: string | undefined
}

/** The certificate that a client showed when its connection opened. */
export interface ClientCertificate {
  /** `spiffe://…` and `dns:…` of the subject alternative name. Empty if the certificate was not verified. */
  readonly names: readonly string[]
  /** Milliseconds since the epoch. */
  readonly expiresAt: number
  /** Why it was not verified. */
  readonly problem?: string
}

const CERTIFICATE = /-----BEGIN[^-]+-----[^-]+-----END/g

export class ListenerTls {
  #material: TlsMaterial
  readonly #servers: Server[] = []

  constructor(material: TlsMaterial) {
    this.#material = material
  }

  /** The server takes over each later certificate. `handshakeTimeout`: milliseconds for all of a handshake. */
  newServer(options: ServerOptions, handshakeTimeout: number): Server {
    const server = createServer({
      ...options,
      ...contextOf(this.#material),
      ALPNProtocols: ['http/1.1'], // a client that offers only others gets an alert
      handshakeTimeout,
      requestCert: this.#material.clientCaCertificates !== undefined,
      rejectUnauthorized: false, // a client without a good certificate may have a key or a JWT
    })
    this.#servers.push(server)
    return server
  }

  /**
   * Returns a function that makes later handshakes use `material`, and cannot fail. A new context has new ticket keys, so no
   * session from before can be resumed: it would bring a certificate that was verified against other CAs. The function returns
   * true if one of these is gone. @throws if the certificates cannot be used.
   */
  prepare(material: TlsMaterial): () => boolean {
    createSecureContext(contextOf(material))
    return () => {
      const before = this.#material
      for (const server of this.#servers) {
        server.setSecureContext(contextOf(material))
        askForCertificates(server, material.clientCaCertificates !== undefined)
      }
      this.#material = material
      const remaining = material.clientCaCertificates ?? ''
      return (before.clientCaCertificates?.match(CERTIFICATE) ?? []).some((ca) => !remaining.includes(ca))
    }
  }

  /** Undefined if the client showed none, or was not asked. */
  certificateOf(socket: TLSSocket): ClientCertificate | undefined {
    if (this.#material.clientCaCertificates === undefined) return undefined
    // Node calls a resumed session of TLS 1.3 authorized even if it has no certificate, so the certificate counts.
    const certificate = socket.getPeerX509Certificate()
    if (certificate === undefined) return undefined
    const expiresAt = Date.parse(certificate.validTo)
    if (!socket.authorized) return { names: [], expiresAt, problem: String(socket.authorizationError) }
    return { names: certificateNames(certificate), expiresAt }
  }
}

function contextOf({ certificates, key, clientCaCertificates }: TlsMaterial): TlsOptions {
  return { cert: certificates, key: key.reveal(), ca: clientCaCertificates, minVersion: 'TLSv1.2' }
}

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
