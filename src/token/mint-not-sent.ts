/** No token, because the token endpoint was not even asked. */

import { TokenError, type TokenErrorCode, type TokenErrorOptions } from '../errors.ts'

export class MintNotSent extends TokenError {
  /** Without a stack: in a flood there are thousands in a second, and where they come from is known. */
  constructor(code: TokenErrorCode, message: string, options?: TokenErrorOptions) {
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = 0
    super(code, message, options)
    Error.stackTraceLimit = stackTraceLimit
  }
}
