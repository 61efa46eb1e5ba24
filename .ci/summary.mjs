/**
 * Reads vitest's JSON reports, prints failures and skips, and ends with one line of totals. Arguments: for each run a file
 * `REPORT.exit` with the exit code of the test command; the report stands beside it, and perhaps `REPORT.again`, a second run
 * of the files that failed. Exits with 1 if a test failed and is not listed as unsteady below, or was skipped without a reason.
 */

import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { networkInterfaces } from 'node:os'
import { relative } from 'node:path'

const addresses = Object.values(networkInterfaces()).flat()
const [, descriptors] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? []
const isRoot = process.getuid?.() === 0
const hasIpv6 = addresses.some(({ address }) => address === '::1')
const hasOutwardAddress = addresses.some(({ family, internal }) => family === 'IPv4' && !internal)
const hasValkey = spawnSync('valkey-server', ['--version']).status === 0
const hasManyDescriptors = Number(descriptors) >= 11_000

/** A skip is allowed only if its reason holds on this machine. */
const ALLOWED_SKIPS = [
  {
    tests: /^test\/processes\/deploy\/kubernetes\.test\.ts: what kustomize/,
    reason: "Debian's kubectl is too old",
    holds: true,
  },
  { tests: /^test\/units\/fleet\/.*Valkey /, reason: "Debian's release has no Valkey", holds: !hasValkey },
  { tests: /^test\/units\/config\/.*without permission/, reason: 'root may read every file', holds: isRoot },
  { tests: /IPv6|::1/, reason: 'no IPv6 on this machine', holds: !hasIpv6 },
  {
    tests: /^test\/(attacks\/exposed-listener|units\/admin\/)/,
    reason: 'this machine has only loopback addresses',
    holds: !hasOutwardAddress,
  },
  {
    tests: /^test\/program\/faults\/idle-/,
    reason: 'fewer than 11,000 descriptors allowed',
    holds: !hasManyDescriptors,
  },
]

/**
 * Tests that fail now and then on a busy machine, with the day and the cause. Such a test is mended, or its entry says why not.
 * A test that fails, passes alone and is not in this list fails the run. `failure`: only if it failed with such words.
 * @type {readonly { tests: RegExp, failure?: RegExp, since: string, cause: string }[]}
 */
const UNSTEADY = [
  {
    tests: /^test\//,
    failure: /not within \d+ ms|timed out in \d+ ?ms/,
    since: '2026-11-26',
    cause: 'it met a deadline that is for a hang alone, and passes where nothing else runs',
  },
  {
    tests: /^test\/attacks\/(head|pattern)-cost/,
    since: '2026-11-26',
    cause: 'it compares two times, and other processes take a part of one of them',
  },
  {
    tests: /^test\/(units|attacks)\/minter/,
    since: '2026-11-26',
    cause: 'limits of parts of a second between two programs in one busy process (mended on this day; watched)',
  },
  {
    tests: /^test\/processes\/lifecycle\/|^test\/program\/faults\//,
    since: '2026-11-26',
    cause:
      'real processes, beside three workers of other tests (a rotation of certificates got no answer once, on Node 26)',
  },
  {
    tests: /^test\/program\/behaviour\/origin-faults.*refuses connections/,
    since: '2026-11-26',
    cause: 'the server of another test may take the port that its server has left for a moment',
  },
  {
    tests: /^test\/program\/tokens\/failing-fast/,
    since: '2026-11-26',
    cause: 'it counts requests in a fixed time, and a busy machine makes fewer',
  },
  {
    tests: /^test\/program\/tokens\/refresh-ahead/,
    since: '2026-11-26',
    cause: 'its bound takes one rejection for each request under way; by R4, one may meet the end of a token twice',
  },
  {
    tests: /^test\/units\/(callers\/proxy|fleet\/)/,
    since: '2026-11-26',
    cause: 'budgets and leases run by the clock, and a busy machine is late for them',
  },
]

const totals = { passed: 0, failed: 0, unsteady: 0, skipped: 0, unexpectedly: 0 }

for (const exitFile of process.argv.slice(2)) {
  const reportFile = exitFile.replace(/\.exit$/, '')
  console.log(`=== ${reportFile.replace(/.*report-(.*)\.json/, 'Node $1')}`)
  const exitCode = readFileSync(exitFile, 'utf8').trim()
  const failuresBefore = totals.failed + totals.unsteady
  const passedAgain = filesPassedIn(`${reportFile}.again`)
  if (existsSync(reportFile)) {
    for (const file of JSON.parse(readFileSync(reportFile, 'utf8')).testResults) count(file, passedAgain)
  } else {
    console.log('no report: the run did not get to its end')
  }
  // Also errors that belong to no test, such as an unhandled rejection, and a lint error before the tests.
  if (exitCode !== '0' && totals.failed + totals.unsteady === failuresBefore) {
    totals.failed += 1
    console.log(`failed: the test command exited with ${exitCode}`)
  }
}

function filesPassedIn(report) {
  if (!existsSync(report)) return new Set()
  const { testResults } = JSON.parse(readFileSync(report, 'utf8'))
  return new Set(testResults.filter(({ status }) => status === 'passed').map(({ name }) => name))
}

function count({ name: path, status: fileStatus, message, assertionResults }, passedAgain) {
  const file = relative(process.cwd(), path)
  const passedAlone = passedAgain.has(path)
  let failuresHere = 0
  const fail = (name, text) => {
    const known = UNSTEADY.find(({ tests, failure }) => tests.test(name) && failure?.test(text) !== false)
    const isUnsteady = passedAlone && known !== undefined
    const verdict = isUnsteady ? `unsteady since ${known.since}, ${known.cause}` : 'failed'
    console.log(`${verdict}${passedAlone ? ', but it passed alone' : ''}: ${name}\n  ${text}`)
    totals[isUnsteady ? 'unsteady' : 'failed'] += 1
    failuresHere += 1
  }
  for (const { status, fullName, failureMessages } of assertionResults) {
    const name = `${file}: ${fullName.trim()}`
    if (status === 'passed') totals.passed += 1
    else if (status === 'failed') fail(name, failureMessages.join('\n').split('\n').slice(0, 12).join('\n  '))
    else {
      const allowed = ALLOWED_SKIPS.find(({ tests, holds }) => holds && tests.test(name))
      totals.skipped += 1
      if (allowed === undefined) totals.unexpectedly += 1
      console.log(`skipped: ${name} (${allowed?.reason ?? 'NO REASON IN .ci/summary.mjs HOLDS HERE'})`)
    }
  }
  if (fileStatus === 'failed' && failuresHere === 0) fail(file, message)
}

const { passed, failed, unsteady, skipped, unexpectedly } = totals
console.log(
  `${passed} passed, ${failed} failed, ${unsteady} unsteady, ${skipped} skipped (${unexpectedly} of them should have run)`,
)
process.exit(failed === 0 && unexpectedly === 0 && passed > 0 ? 0 : 1)
