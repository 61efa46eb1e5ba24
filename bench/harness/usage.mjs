/** The CPU time and memory of a process, from the kernel, for all its threads together. */

import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'

const TICKS_PER_SECOND = Number(execFileSync('getconf', ['CLK_TCK'], { encoding: 'utf8' }))

/** Positions in /proc/PID/stat, counted after the command's name (proc(5)). */
const USER_TICKS = 11
const SYSTEM_TICKS = 12

/**
 * User and system time, in microseconds; the kernel tells it in steps of a tick, mostly 10 ms.
 * @param {number} pid
 */
export function cpuMicros(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const ticks = Number(fields[USER_TICKS]) + Number(fields[SYSTEM_TICKS])
  return (ticks * 1_000_000) / TICKS_PER_SECOND
}

/**
 * The same in microseconds without steps, for windows so short that a tick is too much; of threads that are still there.
 * @param {number} pid
 */
export function threadMicros(pid) {
  const nanoseconds = readdirSync(`/proc/${pid}/task`).map((thread) =>
    Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]),
  )
  return nanoseconds.reduce((total, value) => total + value, 0) / 1_000
}

/**
 * For how long a core was not idle so far, in microseconds; time that the hypervisor gave to others counts.
 * @param {number} core
 */
export function busyMicros(core) {
  const [, line = ''] = new RegExp(`^cpu${core} (.*)$`, 'm').exec(readFileSync('/proc/stat', 'utf8')) ?? []
  const [user = 0, nice = 0, system = 0, , , hardInterrupt = 0, softInterrupt = 0, stolen = 0] = line
    .split(' ')
    .map(Number)
  const ticks = user + nice + system + hardInterrupt + softInterrupt + stolen
  return (ticks * 1_000_000) / TICKS_PER_SECOND
}

/**
 * Resident memory now.
 * @param {number} pid
 */
export function residentBytes(pid) {
  return statusBytes(pid, 'VmRSS')
}

/**
 * The most resident memory that the process had so far.
 * @param {number} pid
 */
export function peakResidentBytes(pid) {
  return statusBytes(pid, 'VmHWM')
}

/**
 * @param {number} pid
 * @param {string} name
 */
function statusBytes(pid, name) {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  const [, kibibytes] = new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(status) ?? []
  return Number(kibibytes) * 1_024
}
