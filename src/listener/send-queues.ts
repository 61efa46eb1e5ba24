/**
 * What the kernel still holds for a client. A socket tells of its client in steps of megabytes only: so much fits into the
 * buffers on the way, and room in them is told when there is plenty. Linux shows the queue of each connection to whoever
 * asks; elsewhere, and for unix sockets, nothing is known.
 */

import { readFile } from 'node:fs/promises'
import type { Socket } from 'node:net'

const TABLES = ['/proc/self/net/tcp', '/proc/self/net/tcp6']

/** Number, local address and port, those of the peer, state, octets that it has not acknowledged. */
const ROW = /^ *\d+: [0-9A-F]+:([0-9A-F]{4}) [0-9A-F]+:([0-9A-F]{4}) [0-9A-F]{2} ([0-9A-F]{8}):/gm

type Queues = ReadonlyMap<string, number>

export class SendQueues {
  #reading: Promise<Queues> | undefined

  /** Octets; undefined where it cannot be told. Whoever asks at the same time shares one look. */
  async bytesFor({ localPort, remotePort }: Socket): Promise<number | undefined> {
    if (localPort === undefined || remotePort === undefined) return undefined
    this.#reading ??= readQueues().finally(() => {
      this.#reading = undefined
    })
    return (await this.#reading).get(`${localPort} ${remotePort}`)
  }
}

async function readQueues(): Promise<Queues> {
  const tables = await Promise.all(TABLES.map((path) => readFile(path, 'latin1').catch(() => '')))
  const queues = new Map<string, number>()
  for (const [, local = '', remote = '', bytes = ''] of tables.join('\n').matchAll(ROW)) {
    queues.set(`${Number.parseInt(local, 16)} ${Number.parseInt(remote, 16)}`, Number.parseInt(bytes, 16))
  }
  return queues
}
