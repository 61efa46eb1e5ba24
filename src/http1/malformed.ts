/** Why a message is refused: a closed set of reasons for the log, and the code that answers a request with such a fault. */

import type { RefusalCode } from '../errors.ts'

const REASONS = {
  // The start line (RFC 9112 §3, §4).
  bad_method: 'request_invalid',
  http2: 'request_invalid', // with prior knowledge
  tls: 'request_invalid', // on a plain port
  unknown_version: 'http_version_refused',
  bad_target: 'request_invalid',
  bad_request_line: 'request_invalid',
  not_http: 'request_invalid',
  bad_status_line: 'request_invalid',
  // Octets and line ends (RFC 9112 §2.2, RFC 9110 §5.5).
  bare_lf: 'request_invalid',
  bare_cr: 'request_invalid',
  control_character: 'request_invalid',
  // Field lines (RFC 9112 §5).
  bad_field_name: 'request_invalid',
  blank_before_colon: 'request_invalid',
  no_colon: 'request_invalid',
  obs_fold: 'request_invalid',
  head_too_large: 'request_head_too_large',
  too_many_fields: 'request_head_too_large',
  // Framing (RFC 9112 §6).
  bad_length: 'request_invalid',
  two_lengths: 'request_invalid',
  length_with_coding: 'request_invalid',
  two_codings: 'request_invalid',
  bad_coding: 'request_invalid',
  unknown_coding: 'transfer_coding_refused',
  coding_in_http_1_0: 'request_invalid',
  bad_interim_response: 'request_invalid',
  unexpected_switch: 'request_invalid',
  switch_to_nothing: 'request_invalid',
  // The chunked coding (RFC 9112 §7.1).
  bad_chunk_size: 'request_invalid',
  bad_chunk_extension: 'request_invalid',
  chunk_line_too_long: 'request_invalid',
  bad_chunk_end: 'request_invalid',
  bad_trailer: 'request_invalid',
} as const satisfies Record<string, RefusalCode>

export type MalformedReason = keyof typeof REASONS

/** Thrown by the parser. Everything behind the fault is unread: the connection must not be used any more. */
export class MalformedMessage extends Error {
  override readonly name = 'MalformedMessage'
  readonly reason: MalformedReason

  constructor(reason: MalformedReason) {
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = 0 // nothing prints the stack, and a flood makes thousands of these in a second
    super(reason)
    Error.stackTraceLimit = stackTraceLimit
    this.reason = reason
  }

  /** The code that answers the request, if it was one. */
  get refusalCode(): (typeof REASONS)[MalformedReason] {
    return REASONS[this.reason]
  }
}
