/** A full collection of garbage, when the test asks for one. */

import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose-gc')
export const collectGarbage: () => void = runInNewContext('gc')
