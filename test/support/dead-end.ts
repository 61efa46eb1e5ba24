/** A port that does not answer at all, not even with a refusal, like a port behind a firewall. */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { eventually } from './changes.ts'

const LISTEN = `
const [host, port] = process.argv.slice(1)
require('node:net').createServer().listen({ host, port: Number(port), backlog: 1 }, () => process.stdout.write('.'))
`
/** Linux completes this many connections for a queue of one. Later ones wait for an answer. */
const QUEUED = 2

/** A stopped process with a full queue. Needs Linux, which lets connections beyond the queue hang. */
export async function openDeadEnd(host: string, port: number): Promise<AsyncDisposable> {
  const child = spawn(process.execPath, ['-e', LISTEN, host, `${port}`], { stdio: ['ignore', 'pipe', 'ignore'] })
  const exited = once(child, 'exit')
  const queue: Socket[] = []
  const close = async () => {
    for (const socket of queue) socket.destroy()
    child.kill('SIGKILL')
    await exited
  }
  try {
    await once(child.stdout, 'data')
    child.kill('SIGSTOP')
    for (let i = 0; i <= QUEUED; i++) queue.push(connect({ host, port }).on('error', () => undefined))
    const connected = () => queue.filter((socket) => socket.readyState === 'open').length
    await eventually(() => connected() === QUEUED, 'a full queue')
  } catch (error) {
    await close()
    throw error
  }
  return { [Symbol.asyncDispose]: close }
}
