/** No token, because the token endpoint was not even asked. */

import { TokenError } from '../errors.ts'

export class MintNotSent extends TokenError {}
