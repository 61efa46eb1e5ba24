/** What the listener knows of the program behind it, and what that sees of a client: the seam between listener and gateway. */

import type { Socket } from 'node:net'
import type { Caller, Peer } from '../callers/callers.ts'
import type { Limit, RefusalCode } from '../errors.ts'
import type { RequestHead } from '../http1/request-parser.ts'
import type { ClientResponse } from './client-response.ts'

/** Answers requests. */
export interface RequestHandler {
  /** The head of a request has arrived. Its content, if it has any, follows through the events of what is returned. */
  receive(head: RequestHead, client: Client): RequestInProgress
  /** What has arrived is no request, or its head came too slowly. The connection closes behind the answer. */
  refuse(input: BrokenInput, client: Client): RequestInProgress
  /** From now on, requests are answered with `draining`. */
  drain(): void
}

export interface BrokenInput {
  readonly code: RefusalCode
  /** From the closed set of the parser. For the log, never for the answer. */
  readonly reason?: string | undefined
  readonly limit?: Limit | undefined
  /** Empty or absent if they are not known. */
  readonly method?: string
  readonly target?: string
}

/** A request, from its head until its response has been flushed. */
export interface RequestInProgress {
  /** True while nobody knows who has sent it, so that it gives up its place first. */
  readonly awaitsProof: boolean
  /** True if a 101 may make its connection a tunnel, to which the bytes behind the head then belong. */
  readonly mayBecomeTunnel: boolean
  /** True if the silence of the client counts: more content is wanted, and the service sends nothing. */
  readonly awaitsClient: boolean
  /** All that came together with the head has been told. */
  start(): void
  /** Nobody overwrites `bytes`. */
  content(bytes: Buffer): void
  contentEnded(): void
  /** The content breaks its framing, or the client has stood still for too long. */
  clientFailed(input: BrokenInput): void
  /** `client_closed`: the client has left. `draining`: the proxy stops. No answer can be sent. */
  abandoned(code: 'client_closed' | 'draining'): void
  /** The client has read what made `ClientResponse.write` return `pause`. */
  responseDrained(): void
  /** The system has taken all of the response. */
  responseFlushed(): void
}

/** What a request handler sees of a client's connection. */
export interface Client extends Peer {
  /** Its peer is on this machine. */
  readonly isLocal: boolean
  /** It came through a unix socket. */
  readonly isOnSocket: boolean
  readonly scheme: 'http' | 'https'
  /** Why the client certificate was not verified. */
  readonly certificateProblem: string | undefined
  /** To the current request. */
  readonly response: ClientResponse
  /** A request of it was admitted. Connections of which none was make room for others first. */
  wasAdmitted: boolean
  /** Of its last admitted request. A reload may end the connection with the identity. */
  caller: Caller | undefined
  /** Sends `100 Continue`, once, unless content has come already. */
  sendContinue(): void
  /** Holds all that comes behind the head, until `releaseInput`. To be called before `receive` returns. */
  holdInput(): void
  /** `request` takes the place of the one whose input is held. */
  releaseInput(request: RequestInProgress): void
  pauseContent(): void
  resumeContent(): void
  /** Breaks the connection off: with a reset, where there is one. */
  reset(): void
  /** Takes no more requests. */
  finish(): void
  /** Since `finish`, or since the connection was broken off here. */
  readonly isFinishing: boolean
  /**
   * The connection becomes a tunnel. Its bytes, `firstBytes` before all others, are read by whoever gets the socket. `carrier` is the
   * TCP socket beneath it. Undefined behind `finish`: the proxy stops, or its caller has lost its identity.
   */
  startTunnel():
    | { readonly socket: Socket; readonly carrier: Socket; readonly firstBytes: Buffer | undefined }
    | undefined
}
