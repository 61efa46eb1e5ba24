/** Child processes. Each is pinned to a core, and none outlives the bench. */

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

/** The proxy under test has this core for itself. */
export const PROXY_CORE = 0
/** The load and the origin share this core. They are the same for all candidates. */
export const LOAD_CORE = 1

/**
 * @typedef {object} Program
 * @property {string} command
 * @property {readonly string[]} args
 * @property {Readonly<Record<string, string>>} [env]
 */

/**
 * @typedef {object} Placement
 * @property {number} core
 * @property {string} folder Where its output goes.
 * @property {string} name Of the files that get its output.
 */

/** No load takes so long: a proxy that hangs must not hang the bench. */
const LOAD_DEADLINE_MS = 180_000

/** @type {Set<import('node:child_process').ChildProcess>} */
const alive = new Set()
process.on('exit', () => {
  for (const child of alive) child.kill('SIGKILL')
})

/** @param {string} command */
export function isInstalled(command) {
  return spawnSync('which', [command]).status === 0
}

/** The kernel ends a child whose parent has died, even if the parent had no time to do it. */
export const tied = isInstalled('setpriv') ? ['setpriv', '--pdeathsig', 'KILL'] : []

export class Child {
  #process
  #errorPath

  /**
   * @param {Program} program
   * @param {Placement} placement
   */
  constructor({ command, args, env = {} }, { core, folder, name }) {
    const [wrapper = '', ...rest] = [...tied, 'taskset', '-c', String(core), command, ...args]
    this.#errorPath = join(folder, `${name}.err`)
    // A file, as a container engine or a service manager would give it: a pipe would cost the reader's core.
    const output = openSync(join(folder, `${name}.out`), 'w')
    const errors = openSync(this.#errorPath, 'w')
    this.#process = spawn(wrapper, rest, {
      cwd: folder,
      env: { PATH: process.env.PATH, ...env },
      stdio: ['ignore', output, errors],
    })
    closeSync(output)
    closeSync(errors)
    alive.add(this.#process)
    this.#process.once('exit', () => alive.delete(this.#process))
  }

  /** taskset and setpriv replace themselves by the program: the id is the program's own. */
  get pid() {
    const { pid } = this.#process
    if (pid === undefined) throw new Error('the process did not start')
    return pid
  }

  get hasExited() {
    return this.#process.exitCode !== null || this.#process.signalCode !== null
  }

  /** What it wrote on stderr, for messages about a start that failed. */
  get errors() {
    return readFileSync(this.#errorPath, 'utf8').trim()
  }

  /** @param {NodeJS.Signals} name */
  signal(name) {
    this.#process.kill(name)
  }

  async stop() {
    if (this.hasExited) return
    const exited = once(this.#process, 'exit')
    this.#process.kill('SIGKILL')
    await exited
  }
}

/**
 * Runs a program on the load's core to its end, and passes on its lines as they come.
 * @param {Program} program
 * @param {(line: string) => void} [onLine]
 * @returns {Promise<string[]>} the lines of its output
 */
export async function runLoad({ command, args }, onLine = () => undefined) {
  const [wrapper = '', ...rest] = [...tied, 'taskset', '-c', String(LOAD_CORE), command, ...args]
  const child = spawn(wrapper, rest, { stdio: ['ignore', 'pipe', 'inherit'] })
  alive.add(child)
  const deadline = setTimeout(() => child.kill('SIGKILL'), LOAD_DEADLINE_MS)
  const closed = once(child, 'close')
  /** @type {string[]} */
  const lines = []
  for await (const line of createInterface({ input: child.stdout })) {
    lines.push(line)
    onLine(line)
  }
  const [code, signal] = await closed
  clearTimeout(deadline)
  alive.delete(child)
  if (code !== 0) throw new Error(`${command} ended with ${code ?? signal}: ${lines.at(-1) ?? ''}`)
  return lines
}
