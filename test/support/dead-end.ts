/** A port that does not answer at all, like one behind a firewall: a stopped process with a full queue. Needs Linux. */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { eventually } from './changes.ts'

const LISTENER = `
const net = require('node:net')
const [host, port, target] = process.argv.slice(1)
const relay = (socket) => socket.pipe(net.connect(Number(target))).pipe(socket)
const answer = (_, response) => response.end('awake')
const server = target === undefined ? require('node:http').createServer(answer) : net.createServer(relay)
server.listen({ host, port: Number(port), backlog: 1 }, () => process.stdout.write(String(server.address().port) + ' '))
`
/** Linux completes this many connections for a queue of one. Later ones wait for an answer. */
const QUEUED = 2

export interface DeadEnd extends AsyncDisposable {
  readonly port: number
  /** From now on it answers. A client sees it when its system tries again: after one second, then after three. */
  wake(): void
}

/** On a free port if `port` is 0. Once awake, it answers, or relays to the port `target` of 127.0.0.1. */
export async function openDeadEnd(host: string, port = 0, target?: number): Promise<DeadEnd> {
  const ports = target === undefined ? [`${port}`] : [`${port}`, `${target}`]
  const child = spawn(process.execPath, ['-e', LISTENER, host, ...ports], { stdio: ['ignore', 'pipe', 'ignore'] })
  const [told] = await once(child.stdout, 'data')
  const at = { host, port: Number(told) }
  child.kill('SIGSTOP')
  const queue = Array.from({ length: QUEUED + 1 }, (): Socket => connect(at).on('error', () => undefined))
  const connected = () => queue.filter((socket) => socket.readyState === 'open').length
  await eventually(() => connected() === QUEUED, 'a full queue')
  return {
    port: at.port,
    wake: () => void child.kill('SIGCONT'),
    [Symbol.asyncDispose]: async () => {
      for (const socket of queue) socket.destroy()
      child.kill('SIGKILL')
      await once(child, 'exit')
    },
  }
}
