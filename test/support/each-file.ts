/** Runs in the worker before each file of tests. */

import { lookOften } from './fast-looks.ts'
import { measureAnew } from './pace.ts'

measureAnew()
lookOften()
