/** TLS of the listener: its certificate, which a reload replaces, and the certificates of its clients. */

import { X509Certificate } from 'node:crypto'
import type { Server, TLSSocket, TlsOptions } from 'node:tls'
import { askForCertificates } from '../http/node-internals.ts'

/** The content of the files, all in PEM. */
export interface TlsMaterial {
  /** The certificate of the listener, and its chain. */
  readonly certificates: string
  readonly key: { reveal(): string }
  /** If set, clients are asked for a certificate, which these CAs must have issued. */
  readonly clientCaCertificates: string | undefined
}

/** The certificate of a client that was verified when its connection opened. */
export interface ClientCertificate {
  /** `spiffe://…` and `dns:…` of the subject alternative name. */
  readonly names: readonly string[]
  /** Milliseconds since the epoch. */
  readonly expiresAt: number
}

export interface HandshakeObserver {
  /** `failures`: for this reason, since it was last reported. */
  handshakesFailed(reason: string, failures: number): void
}

/** Reports failed handshakes, each reason once a minute at most: anyone on the network can cause as many as they like. */
export class HandshakeFailures {
  readonly #observer: HandshakeObserver
  readonly #byReason = new Map<string, { failures: number; reportedAt: number }>()

  constructor(observer: HandshakeObserver) {
    this.#observer = observer
  }

  /** `now` is monotonic milliseconds. */
  add(error: Error, now: number): void {
    const reason = 'code' in error ? String(error.code) : 'unknown'
    if (reason === 'ECONNRESET') return // a probe that opens a connection and closes it
    const seen = this.#byReason.get(reason) ?? { failures: 0, reportedAt: Number.NEGATIVE_INFINITY }
    this.#byReason.set(reason, seen)
    seen.failures++
    if (now - seen.reportedAt < REPORT_EVERY_MS) return
    this.#observer.handshakesFailed(reason, seen.failures)
    seen.failures = 0
    seen.reportedAt = now
  }
}

const REPORT_EVERY_MS = 60_000
const CERTIFICATE = /-----BEGIN[^-]+-----[^-]+-----END/g

export class ListenerTls {
  #material: TlsMaterial
  readonly #servers = new Set<Server>()

  constructor(material: TlsMaterial) {
    this.#material = material
  }

  /** Of the certificate of the listener, in milliseconds since the epoch. */
  get validity(): { readonly from: number; readonly to: number } {
    const { validFrom, validTo } = new X509Certificate(this.#material.certificates)
    return { from: Date.parse(validFrom), to: Date.parse(validTo) }
  }

  /** `handshakeTimeoutMs`: for all of a handshake. */
  serverOptions(handshakeTimeoutMs: number): TlsOptions {
    return {
      ...contextOf(this.#material),
      ALPNProtocols: ['http/1.1'], // a client that offers only others gets an alert
      handshakeTimeout: handshakeTimeoutMs,
      requestCert: this.#material.clientCaCertificates !== undefined,
      rejectUnauthorized: false, // a client without a good certificate may have a key or a JWT
    }
  }

  /** This server takes over each later certificate. */
  add(server: Server): void {
    this.#servers.add(server)
    server.once('close', () => this.#servers.delete(server))
  }

  /**
   * Later handshakes use `material`. A new context has new ticket keys, so no session from before can be resumed: it would bring
   * a certificate that was verified against other CAs. Returns true if one of these is gone.
   * @throws if the key does not fit the certificate; then the old one stays in use.
   */
  use(material: TlsMaterial): boolean {
    const before = this.#material
    if (isSame(before, material)) return false
    for (const server of this.#servers) {
      server.setSecureContext(contextOf(material))
      askForCertificates(server, material.clientCaCertificates !== undefined)
    }
    this.#material = material
    const remaining = material.clientCaCertificates ?? ''
    return (before.clientCaCertificates?.match(CERTIFICATE) ?? []).some((ca) => !remaining.includes(ca))
  }

  /** Returns the verified certificate of a client; or why it was not verified; or undefined if it has none. */
  certificateOf(socket: TLSSocket): ClientCertificate | string | undefined {
    if (this.#material.clientCaCertificates === undefined) return undefined
    // Node calls a resumed session of TLS 1.3 authorized even if it has no certificate, so the certificate counts.
    const certificate = socket.getPeerX509Certificate()
    if (certificate === undefined) return undefined
    if (!socket.authorized) return String(socket.authorizationError)
    return { names: certificateNames(certificate), expiresAt: Date.parse(certificate.validTo) }
  }
}

function isSame(one: TlsMaterial, other: TlsMaterial): boolean {
  const isSameIdentity = one.certificates === other.certificates && one.key.reveal() === other.key.reveal()
  return isSameIdentity && one.clientCaCertificates === other.clientCaCertificates
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
