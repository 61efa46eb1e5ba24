/** Describes the machine and the programs of a run. */

import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { cpus, loadavg, release, totalmem } from 'node:os'
import { fileURLToPath } from 'node:url'

/**
 * @typedef {object} Machine
 * @property {string} cpu
 * @property {number} cores
 * @property {number} memoryGib
 * @property {string} kernel
 * @property {string} congestionControl Of TCP, on the loopback, too: that decides how content goes out.
 * @property {number} loadBefore Average of the last minute when it began: above some tenths, others were at work.
 * @property {Readonly<Record<string, string>>} versions By program.
 */

/** @returns {Machine} */
export function describeMachine() {
  return {
    cpu: cpus()[0]?.model.trim() ?? 'unknown',
    cores: cpus().length,
    memoryGib: Math.round(totalmem() / 2 ** 30),
    kernel: `Linux ${release()}`,
    congestionControl: readFileSync('/proc/sys/net/ipv4/tcp_congestion_control', 'utf8').trim(),
    loadBefore: loadavg()[0] ?? Number.NaN,
    versions: {
      node: process.versions.node,
      'this program': revision(),
      nginx: firstMatch(/nginx\/(\S+)/, 'nginx', '-v'),
      haproxy: firstMatch(/version (\S+)/, 'haproxy', '-v'),
      go: firstMatch(/go(\d\S*)/, 'go', 'version'),
      wrk: firstMatch(/wrk (\S+)/, 'wrk', '-v'),
      'http-proxy': packageVersion('http-proxy'),
      '@fastify/reply-from': packageVersion('@fastify/reply-from'),
    },
  }
}

function revision() {
  const project = fileURLToPath(new URL('../..', import.meta.url))
  const commit = firstMatch(/^([0-9a-f]+)$/m, 'git', '-C', project, 'rev-parse', '--short', 'HEAD')
  const changes = output('git', ['-C', project, 'status', '--porcelain', '--', 'src'])
  return commit === 'missing' || changes === '' ? commit : `${commit} with changes`
}

/** @param {string} name */
function packageVersion(name) {
  return JSON.parse(readFileSync(new URL(`../node_modules/${name}/package.json`, import.meta.url), 'utf8')).version
}

/**
 * @param {RegExp} pattern
 * @param {string} command
 * @param {readonly string[]} args
 */
function firstMatch(pattern, command, ...args) {
  return pattern.exec(output(command, args))?.[1] ?? 'missing'
}

/**
 * Both outputs, whatever the exit code: nginx and wrk tell their versions on stderr, the latter with an error.
 * @param {string} command
 * @param {readonly string[]} args
 */
function output(command, args) {
  try {
    return execFileSync('sh', ['-c', '"$0" "$@" 2>&1', command, ...args], { encoding: 'utf8' })
  } catch (error) {
    return error instanceof Error && 'stdout' in error ? String(error.stdout) : ''
  }
}
