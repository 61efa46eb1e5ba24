/** TLS of the listener: its certificate, which a reload replaces, and the certificates of its clients. */

import { constants, type X509Certificate } from 'node:crypto'
import type { Socket } from 'node:net'
import { createServer, type Server, type TLSSocket } from 'node:tls'

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
  /** Why it names nobody. For the log. */
  readonly problem?: string | undefined
}

export interface TlsEvents {
  /** A handshake has ended well. `carrier` is the TCP socket. */
  opened(socket: TLSSocket, carrier: Socket, certificate: ClientCertificate | undefined): void
  handshakeFailed(code: string | undefined): void
}

const CERTIFICATE = /-----BEGIN[^-]+-----[^-]+-----END/g

const { SSL_OP_NO_RENEGOTIATION, SSL_OP_NO_TICKET } = constants

export class ListenerTls {
  #material: TlsMaterial
  /** It listens nowhere: sockets are given to it. A reload replaces it. */
  #server: Server
  readonly #handshakeTimeoutMs: number
  readonly #events: TlsEvents
  /** TCP connections whose handshake goes on, the oldest first. */
  readonly #carriers = new Map<string, Socket>()
  /** Those among them that began when another CA of clients was trusted, which is now gone. */
  #distrusted: ReadonlySet<Socket> = new Set()

  /** `handshakeTimeoutMs`: for all of a handshake. */
  constructor(material: TlsMaterial, handshakeTimeoutMs: number, events: TlsEvents) {
    this.#material = material
    this.#handshakeTimeoutMs = handshakeTimeoutMs
    this.#events = events
    this.#server = this.#newServer(material)
  }

  get handshakes(): number {
    return this.#carriers.size
  }

  #newServer({ certificates, key, clientCaCertificates }: TlsMaterial): Server {
    const asksForCertificate = clientCaCertificates !== undefined
    const server = createServer({
      cert: certificates,
      key: key.reveal(),
      ca: clientCaCertificates,
      minVersion: 'TLSv1.2',
      // A resumed session brings the certificate of its first handshake, however old that is, and whatever the client has now.
      secureOptions: asksForCertificate ? SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET : SSL_OP_NO_RENEGOTIATION,
      ALPNProtocols: ['http/1.1'], // a client that offers only others gets an alert
      handshakeTimeout: this.#handshakeTimeoutMs,
      requestCert: asksForCertificate,
      rejectUnauthorized: false, // a client without a good certificate may have a key or a JWT
    })
    server.on('secureConnection', (socket) => this.#secured(socket, asksForCertificate))
    server.on('tlsClientError', ({ code }: NodeJS.ErrnoException, socket) => {
      socket.destroy()
      this.#events.handshakeFailed(code)
    })
    return server
  }

  /** Begins the handshake on a connection that was just accepted. */
  begin(carrier: Socket): void {
    const name = nameOf(carrier)
    this.#carriers.set(name, carrier)
    carrier.once('close', () => this.#carriers.delete(name))
    carrier.allowHalfOpen = false // a client that ends its side during the handshake has left
    this.#server.emit('connection', carrier)
  }

  #secured(socket: TLSSocket, asksForCertificate: boolean): void {
    // Undefined if the client has reset the connection meanwhile, so that it has no address any more.
    const name = nameOf(socket)
    const carrier = this.#carriers.get(name)
    const certificate = asksForCertificate ? certificateOf(socket) : undefined
    const isRevoked = certificate !== undefined && carrier !== undefined && this.#distrusted.has(carrier)
    if (carrier === undefined || isRevoked) {
      socket.destroy()
      return
    }
    this.#carriers.delete(name)
    socket.allowHalfOpen = true
    carrier.allowHalfOpen = true
    this.#events.opened(socket, carrier, certificate)
  }

  /** Ends the oldest handshake. Returns false if there is none. */
  dropOldest(): boolean {
    const [oldest] = this.#carriers
    if (oldest === undefined) return false
    const [name, carrier] = oldest
    this.#carriers.delete(name)
    carrier.destroy()
    return true
  }

  /**
   * Returns a function that makes later handshakes use `material`, and cannot fail. A new context has new ticket keys, so no
   * session from before can be resumed. The function returns true if a CA of clients is gone; then a handshake that has begun
   * fails if its client shows a certificate. @throws if the certificates cannot be used.
   */
  prepare(material: TlsMaterial): () => boolean {
    const server = this.#newServer(material)
    return () => {
      const remaining = material.clientCaCertificates ?? ''
      const former = this.#material.clientCaCertificates?.match(CERTIFICATE) ?? []
      this.#server = server
      this.#material = material
      const isOneGone = former.some((ca) => !remaining.includes(ca))
      if (isOneGone) this.#distrusted = new Set(this.#carriers.values())
      return isOneGone
    }
  }

  /** Ends all handshakes. */
  close(): void {
    for (const carrier of this.#carriers.values()) carrier.destroy()
  }
}

/** The same for a TCP socket and for the TLS socket on it, and for no other connection that is open. */
function nameOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`
}

/** Undefined if the client showed none. */
function certificateOf(socket: TLSSocket): ClientCertificate | undefined {
  // Node calls a resumed session of TLS 1.3 authorized even if it has no certificate, so the certificate counts.
  const certificate = socket.getPeerX509Certificate()
  if (certificate === undefined) return undefined
  const expiresAt = Date.parse(certificate.validTo)
  if (!socket.authorized) {
    return { names: [], expiresAt, problem: `certificate not verified: ${socket.authorizationError}` }
  }
  return { expiresAt, ...namesOf(certificate) }
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
