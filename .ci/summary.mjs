/**
 * Reads vitest's JSON reports, prints failures and skips, and ends with one line of totals. Arguments: for each run a file
 * `REPORT.exit` with the exit code of the test command; the report stands beside it, and perhaps `REPORT.again`, a second run
 * of the files that failed, alone. A test that failed and passed alone is printed with its history and counted, and
 * fails the run if more do so than is allowed below. Exits with 1 if a test failed, or was skipped without a reason.
 */

import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { networkInterfaces } from 'node:os'
import { relative } from 'node:path'

const addresses = Object.values(networkInterfaces()).flat()
const isRoot = process.getuid?.() === 0
const hasIpv6 = addresses.some(({ address }) => address === '::1')
const hasOutwardAddress = addresses.some(({ family, internal }) => family === 'IPv4' && !internal)
const hasValkey = spawnSync('valkey-server', ['--version']).status === 0

/** A skip is allowed only if its reason holds on this machine. */
const ALLOWED_SKIPS = [
  {
    tests: /^test\/(simulation|long)\/simulation\.test\.ts/,
    reason: 'the simulation runs on Node 20',
    holds: true,
  },
  {
    tests:
      /^test\/program\/behaviour\/websocket\.test\.ts: (?:a (?:client|service) that resets|a stop, while bytes wait|bytes wait for)/,
    reason: 'a unix socket has no reset',
    holds: true,
  },
  {
    tests: /^test\/processes\/deploy\/kubernetes\.test\.ts: what kustomize/,
    reason: "Debian's kubectl is too old",
    holds: true,
  },
  { tests: /^test\/(program|units)\/fleet\/.*Valkey /, reason: "Debian's release has no Valkey", holds: !hasValkey },
  { tests: /^test\/units\/config\/.*without permission/, reason: 'root may read every file', holds: isRoot },
  { tests: /IPv6|::1/, reason: 'no IPv6 on this machine', holds: !hasIpv6 },
  {
    tests: /^test\/(attacks\/exposed-listener|(program|units)\/admin\/)/,
    reason: 'this machine has only loopback addresses',
    holds: !hasOutwardAddress,
  },
]

/**
 * Tests that may fail and then pass alone, each with the reason and the day until which that holds. Empty is as it should be: a
 * test that fails now and then hides a fault, or is at fault itself.
 * @type {readonly { tests: RegExp, why: string, until: string }[]}
 */
const ALLOWED_TO_PASS_ALONE = []

/**
 * How many others may do so in one run of all versions. Each is printed with its history and counted.
 * @type {{ most: number, why: string, until: string }}
 */
const UNSTEADY = {
  most: 6,
  why: 'nobody has seen twenty whole runs in a row on two idle cores since the suite was re-cut',
  until: '2026-12-31',
}

/** Of `Changes.until`, of `expect.poll` and of vitest: what a lost wake-up looks like. */
const DEADLINE = /not within \d+ ms|timed out|Test timed out/

const totals = { passed: 0, failed: 0, passedAlone: 0, unsteady: 0, deadlines: 0, skipped: 0, unexpectedly: 0 }
/** How each test ended in each run: `Node 20: passed in 0.3 s`. */
const histories = new Map()

const today = new Date().toISOString().slice(0, 10)
const runs = process.argv.slice(2).map((exitFile) => {
  const reportFile = exitFile.replace(/\.exit$/, '')
  const name = reportFile.replace(/.*report-(.*)\.json/, 'Node $1')
  return {
    name,
    exitCode: readFileSync(exitFile, 'utf8').trim(),
    files: read(reportFile),
    again: read(`${reportFile}.again`),
  }
})

for (const { name, files, again } of runs) {
  for (const { label, results } of [
    { label: name, results: files },
    { label: `${name}, alone`, results: again },
  ]) {
    for (const { file, tests } of results ?? []) {
      for (const { fullName, status, duration = 0 } of tests) {
        const told = `${label}: ${status} in ${(duration / 1_000).toFixed(1)} s`
        const key = nameOf(file, fullName)
        histories.set(key, [...(histories.get(key) ?? []), told])
      }
    }
  }
}

for (const { name, exitCode, files, again } of runs) {
  console.log(`=== ${name}`)
  const failuresBefore = totals.failed + totals.passedAlone
  for (const file of files ?? []) count(file, again)
  if (files === undefined) console.log('no report: the run did not get to its end')
  // Also errors that belong to no test, such as an unhandled rejection, and a lint error before the tests.
  if (exitCode !== '0' && totals.failed + totals.passedAlone === failuresBefore) {
    totals.failed += 1
    console.log(`failed: the test command exited with ${exitCode}`)
  }
}

/** The files of a report, or undefined if there is none. */
function read(report) {
  if (!existsSync(report)) return undefined
  const { testResults } = JSON.parse(readFileSync(report, 'utf8'))
  return testResults.map(({ name, status, message, assertionResults }) => {
    return { file: relative(process.cwd(), name), status, message, tests: assertionResults }
  })
}

function nameOf(file, fullName) {
  return `${file}: ${fullName.trim()}`
}

function count({ file, status: fileStatus, message, tests }, again) {
  const passedAlone = again?.some((other) => other.file === file && other.status === 'passed') === true
  let failuresHere = 0
  const fail = (name, text) => {
    failuresHere += 1
    const metDeadline = DEADLINE.test(text)
    if (!passedAlone) {
      totals.failed += 1
      console.log(`failed: ${name}\n  ${text}`)
      return
    }
    totals.passedAlone += 1
    if (metDeadline) totals.deadlines += 1
    const allowed = ALLOWED_TO_PASS_ALONE.find(({ tests: names, until }) => names.test(name) && today <= until)
    if (allowed === undefined) totals.unsteady += 1
    const verdict =
      allowed === undefined
        ? 'UNSTEADY: failed, and passed alone'
        : `passed alone, allowed until ${allowed.until}: ${allowed.why}`
    const look = metDeadline ? '\n  It met a deadline: a lost wake-up looks like that. Look into it.' : ''
    console.log(`${verdict}: ${name}\n  ${text}${look}\n  ${historyOf(file, name).join('\n  ')}`)
  }
  for (const { status, fullName, failureMessages } of tests) {
    const name = nameOf(file, fullName)
    if (status === 'passed') totals.passed += 1
    else if (status === 'failed') fail(name, failureMessages.join('\n').split('\n').slice(0, 12).join('\n  '))
    else {
      const allowed = ALLOWED_SKIPS.find(({ tests: names, holds }) => holds && names.test(name))
      totals.skipped += 1
      if (allowed === undefined) totals.unexpectedly += 1
      console.log(`skipped: ${name} (${allowed?.reason ?? 'NO REASON IN .ci/summary.mjs HOLDS HERE'})`)
    }
  }
  if (fileStatus === 'failed' && failuresHere === 0) fail(file, message)
}

/** How it ended in the runs of this time, and the last changes of its file. */
function historyOf(file, name) {
  const { stdout } = spawnSync('git', ['log', '-3', '--format=%h %as %s', '--', file], { encoding: 'utf8' })
  return [...(histories.get(name) ?? []), ...(stdout ?? '').split('\n').filter((line) => line !== '')]
}

const { passed, failed, passedAlone, unsteady, deadlines, skipped, unexpectedly } = totals
const mostUnsteady = today <= UNSTEADY.until ? UNSTEADY.most : 0
if (unsteady > 0) console.log(`${unsteady} unsteady, ${mostUnsteady} allowed until ${UNSTEADY.until}: ${UNSTEADY.why}`)
console.log(
  `${passed} passed, ${failed} failed, ${passedAlone} failed and passed alone (${deadlines} at a deadline), ` +
    `${skipped} skipped (${unexpectedly} of them should have run)`,
)
process.exit(failed === 0 && unsteady <= mostUnsteady && unexpectedly === 0 && passed > 0 ? 0 : 1)
