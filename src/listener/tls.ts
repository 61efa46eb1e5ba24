/** TLS of the listener: its certificate, which a reload replaces, and the connections from the handshake on. */

import { constants } from 'node:crypto'
import type { Socket } from 'node:net'
import { createServer, type Server, type TLSSocket } from 'node:tls'
import * as clock from '../clock.ts'
import type { HandshakeFailureReason } from '../errors.ts'
import { beginTls } from '../node-internals.ts'
import type { Secret } from '../secret.ts'
import { type ClientCertificate, certificateOf } from './client-certificate.ts'

/** The content of the files, all in PEM. */
export interface TlsSettings {
  /** The certificate of the listener, and its chain. Undefined: plain HTTP. */
  readonly certFile?: { readonly content: string } | undefined
  readonly keyFile?: { readonly content: Secret } | undefined
  /** If set, clients are asked for a certificate, which these CAs must have issued. */
  readonly clientCaFile?: { readonly content: string } | undefined
}

export interface TlsEvents {
  /** A handshake has ended well. `carrier` is the TCP socket. */
  opened(socket: TLSSocket, carrier: Socket, certificate: ClientCertificate | undefined): void
  handshakeFailed(failure: HandshakeFailure): void
}

export interface HandshakeFailure {
  readonly reason: HandshakeFailureReason
  /** Of OpenSSL. */
  readonly code?: string | undefined
  /** Of the client. */
  readonly address: string | undefined
  /** The first for this reason, or the first after a pause of ten seconds. */
  readonly isFirst: boolean
}

const TOLD_AGAIN_AFTER_MS = 10_000

/** What a client of another protocol, or one that does not trust our certificate, makes OpenSSL say. */
const REASONS: readonly (readonly [RegExp, HandshakeFailureReason])[] = [
  [/HTTP_REQUEST/, 'plain_http'],
  [/UNSUPPORTED_PROTOCOL|NO_APPLICATION_PROTOCOL|NO_SHARED_|VERSION|NO_SUITABLE/, 'no_shared_protocol'],
  [/ALERT_.*(?:UNKNOWN_CA|CERTIFICATE)/, 'certificate_not_trusted'],
  [/^ECONNRESET$|^EPIPE$/, 'client_left'],
  [/TIMEOUT/, 'too_slow'],
]

const CERTIFICATE = /-----BEGIN[^-]+-----[^-]+-----END/g

const { SSL_OP_NO_RENEGOTIATION, SSL_OP_NO_TICKET } = constants

/** What a handshake may take. The hello of a client has up to 2 KiB, and a chain of four certificates with RSA-4096 has 7. */
const MAX_HANDSHAKE_BYTES = 16 * 1024
/** So many bytes may have come that cannot be decrypted yet. */
const MAX_RECORD_BYTES = 17 * 1024
/** Beyond this share of the connections, and this number, a handshake that has lasted for so long ends for each one that begins. */
const HANDSHAKE_SHARE = 1 / 8
const LEAST_HANDSHAKES = 16
const OLD_MS = 1_000
/**
 * What a connection may send beyond its content, at once and then in each second: 1,200 KeyUpdates, which cost some 40 ms, or
 * 2,000 WebSocket messages of one byte.
 */
const MAX_EXCESS_BYTES = 64 * 1024
const EXCESS_BYTES_PER_SECOND = 32 * 1024
/** The longest that a timer of Node runs. */
const NO_TIMEOUT_MS = 2 ** 31 - 1
/** Between two looks at what connections have sent. */
const LOOK_MS = 200

/** A TCP connection whose handshake goes on. */
interface Opening {
  readonly carrier: Socket
  /** Running time. */
  readonly acceptedAt: number
  /** It was accepted when another CA of clients was trusted, which is now gone. */
  isDistrusted: boolean
}

/** An open connection, and what it has sent. */
interface Traffic {
  readonly carrier: Socket
  /** At the last look. */
  seenBytes: number
  seenExcessBytes: number
  /** Beyond its content, less what is forgiven with time. */
  excessBytes: number
}

export class ListenerTls {
  #settings: TlsSettings
  /** It listens nowhere: sockets are given to it. A reload replaces it. */
  #server: Server
  readonly #handshakeTimeoutMs: number
  readonly #events: TlsEvents
  /** The oldest first. */
  readonly #openings = new Map<string, Opening>()
  readonly #manyHandshakes: number
  readonly #lastFailures = new Map<HandshakeFailureReason, number>()
  readonly #traffic = new Map<TLSSocket, Traffic>()
  readonly #looking: clock.Timer

  /** `handshakeTimeoutMs`: for all of a handshake. `maxConnections`: of the listener. */
  constructor(settings: TlsSettings, handshakeTimeoutMs: number, maxConnections: number, events: TlsEvents) {
    this.#settings = settings
    this.#handshakeTimeoutMs = handshakeTimeoutMs
    this.#manyHandshakes = Math.max(LEAST_HANDSHAKES, Math.floor(maxConnections * HANDSHAKE_SHARE))
    this.#events = events
    this.#server = this.#newServer(settings)
    this.#looking = clock.every(LOOK_MS, () => this.#look(clock.runningTime()))
  }

  get handshakes(): number {
    return this.#openings.size
  }

  #newServer({ certFile, keyFile, clientCaFile }: TlsSettings): Server {
    const asksForCertificate = clientCaFile !== undefined
    const server = createServer({
      cert: certFile?.content,
      key: keyFile?.content.reveal(),
      ca: clientCaFile?.content,
      minVersion: 'TLSv1.2',
      // A resumed session brings the certificate of its first handshake, however old that is, and whatever the client has now.
      secureOptions: asksForCertificate ? SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET : SSL_OP_NO_RENEGOTIATION,
      ALPNProtocols: ['http/1.1'], // a client that offers only others gets an alert
      handshakeTimeout: NO_TIMEOUT_MS, // `#look` ends what is late, but not because the process stood still
      requestCert: asksForCertificate,
      rejectUnauthorized: false, // a client without a good certificate may have a key or a JWT
    })
    server.on('secureConnection', (socket) => this.#secured(socket, asksForCertificate))
    server.on('tlsClientError', ({ code = '' }: NodeJS.ErrnoException, socket) => {
      socket.destroy()
      const name = nameOf(socket)
      const opening = this.#openings.get(name)
      const [, reason = 'other'] = REASONS.find(([pattern]) => pattern.test(code)) ?? []
      if (opening !== undefined) this.#end(name, opening, reason, code)
    })
    return server
  }

  /** Begins the handshake on a connection that was just accepted. */
  begin(carrier: Socket): void {
    if (this.#openings.size >= this.#manyHandshakes) this.dropOldest(OLD_MS)
    const name = nameOf(carrier)
    this.#openings.set(name, { carrier, acceptedAt: clock.runningTime(), isDistrusted: false })
    carrier.allowHalfOpen = false // a client that ends its side during the handshake has left
    carrier.on('error', () => undefined) // `close` follows
    carrier.once('close', () => {
      const opening = this.#openings.get(name)
      if (opening?.carrier === carrier) this.#end(name, opening, 'client_left')
    })
    beginTls(this.#server, carrier)
  }

  #secured(socket: TLSSocket, asksForCertificate: boolean): void {
    // Undefined if the client has reset the connection meanwhile, so that it has no address any more.
    const name = nameOf(socket)
    const opening = this.#openings.get(name)
    const certificate = asksForCertificate ? certificateOf(socket) : undefined
    this.#openings.delete(name)
    if (opening === undefined || (opening.isDistrusted && certificate !== undefined)) {
      socket.destroy()
      return
    }
    const { carrier } = opening
    socket.allowHalfOpen = true
    carrier.allowHalfOpen = true
    this.#events.opened(socket, carrier, certificate)
    // Content may have come with the end of the handshake, and is decrypted by then.
    setImmediate(() => this.#watch(socket, carrier))
  }

  #watch(socket: TLSSocket, carrier: Socket): void {
    if (carrier.bytesRead - socket.bytesRead > MAX_HANDSHAKE_BYTES + MAX_RECORD_BYTES) socket.destroy()
    if (socket.destroyed) return
    this.#traffic.set(socket, { carrier, seenBytes: 0, seenExcessBytes: excessOf(socket, carrier), excessBytes: 0 })
    socket.once('close', () => this.#traffic.delete(socket))
  }

  /** OpenSSL works through large handshakes, KeyUpdates and records of single bytes, and Node has no limits for them. */
  #look(now: number): void {
    for (const [name, opening] of this.#openings) {
      if (opening.carrier.bytesRead > MAX_HANDSHAKE_BYTES) this.#end(name, opening, 'too_large')
      else if (now - opening.acceptedAt >= this.#handshakeTimeoutMs) this.#end(name, opening, 'too_slow')
    }
    for (const [socket, traffic] of this.#traffic) {
      const { bytesRead } = traffic.carrier
      if (bytesRead === traffic.seenBytes && traffic.excessBytes === 0) continue // most connections are idle
      const excess = excessOf(socket, traffic.carrier)
      const forgivenBytes = (EXCESS_BYTES_PER_SECOND * LOOK_MS) / 1_000
      traffic.excessBytes = Math.max(0, traffic.excessBytes + excess - traffic.seenExcessBytes - forgivenBytes)
      traffic.seenBytes = bytesRead
      traffic.seenExcessBytes = excess
      if (traffic.excessBytes > MAX_EXCESS_BYTES + MAX_RECORD_BYTES) socket.destroy()
    }
  }

  /** Ends the oldest handshake, if it is so old. Returns false if there is none. */
  dropOldest(leastAgeMs = 0): boolean {
    const [oldest] = this.#openings
    if (oldest === undefined || clock.runningTime() - oldest[1].acceptedAt < leastAgeMs) return false
    this.#end(...oldest, 'no_room')
    return true
  }

  /** Nobody hears of a client that has sent nothing: it may have opened the connection before it needs it, or look for the port. */
  #end(name: string, { carrier }: Opening, reason: HandshakeFailureReason, code?: string): void {
    this.#openings.delete(name)
    const address = carrier.remoteAddress
    carrier.destroy()
    if (carrier.bytesRead === 0 && reason !== 'no_room') return
    const now = clock.now()
    const isFirst = now - (this.#lastFailures.get(reason) ?? Number.NEGATIVE_INFINITY) >= TOLD_AGAIN_AFTER_MS
    this.#lastFailures.set(reason, now)
    this.#events.handshakeFailed({ reason, code, address, isFirst })
  }

  /**
   * Returns a function that makes later handshakes use `settings`, and cannot fail. A new context has new ticket keys, so no
   * session from before can be resumed. The function returns true if a CA of clients is gone; then a handshake that has begun
   * fails if its client shows a certificate. @throws if the certificates cannot be used.
   */
  prepare(settings: TlsSettings): () => boolean {
    const former = this.#settings
    if (isSame(settings, former)) return () => false
    const server = this.#newServer(settings)
    return () => {
      const remaining = settings.clientCaFile?.content ?? ''
      this.#server = server
      this.#settings = settings
      const isOneGone = former.clientCaFile?.content.match(CERTIFICATE)?.some((ca) => !remaining.includes(ca)) === true
      if (isOneGone) for (const opening of this.#openings.values()) opening.isDistrusted = true
      return isOneGone
    }
  }

  /** Ends all handshakes. */
  endHandshakes(): void {
    for (const { carrier } of this.#openings.values()) carrier.destroy()
    this.#openings.clear()
  }

  close(): void {
    this.#looking.cancel()
    this.endHandshakes()
  }
}

function isSame(one: TlsSettings, other: TlsSettings): boolean {
  const textsOf = ({ certFile, keyFile, clientCaFile }: TlsSettings) =>
    [certFile?.content, keyFile?.content.reveal(), clientCaFile?.content].join('\n')
  return textsOf(one) === textsOf(other)
}

/** The bytes that were no content, and more than content needs: a record of 11 bytes, the least in practice, has 22 around it. */
function excessOf(socket: TLSSocket, carrier: Socket): number {
  return carrier.bytesRead - 3 * socket.bytesRead
}

/** The same for a TCP socket and for the TLS socket on it, and for no other connection that is open. */
function nameOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`
}
