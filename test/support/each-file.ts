/** Runs in the worker before each file of tests. */

import { measureAnew } from './pace.ts'

measureAnew()
