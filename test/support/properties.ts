/** fast-check for property tests. `TEST_SEED` makes it try the same values again. */

import fc from 'fast-check'
import { chooseSeed } from './seed.ts'

fc.configureGlobal({ seed: chooseSeed() })

export { fc }
