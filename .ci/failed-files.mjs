/**
 * Prints the test files that failed according to the vitest report that is the argument. Prints nothing if there are more
 * than six: then the machine is not what is at fault.
 */

import { existsSync, readFileSync } from 'node:fs'
import { relative } from 'node:path'

const [, , report] = process.argv
const { testResults } = existsSync(report) ? JSON.parse(readFileSync(report, 'utf8')) : { testResults: [] }
const failed = testResults.filter(({ status }) => status === 'failed').map(({ name }) => relative(process.cwd(), name))
if (failed.length <= 6) console.log(failed.join(' '))
