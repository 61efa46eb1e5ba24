/** Inspects a proxy's process through Node's inspector: its heap after a collection, and the handles that keep it alive. */

import { WebSocket } from 'ws'
import type { SpawnedProxy } from './spawn-proxy.ts'

/** Options of Node for the process, which open the inspector. */
export const PROBE_ARGS: readonly string[] = ['--inspect=127.0.0.1:0']

const LASTING = /^(TCP|TLS|Pipe|Timeout$)/
const ANNOUNCEMENT = /Debugger listening on (ws:\S+)/

interface Answer {
  readonly id: number
  readonly result?: { readonly result?: { readonly value?: unknown }; readonly usedSize?: number }
}

export class ProcessProbe implements Disposable {
  readonly #socket: WebSocket
  readonly #waiting = new Map<number, (answer: Answer) => void>()
  #calls = 0

  private constructor(socket: WebSocket) {
    this.#socket = socket
    socket.on('message', (data) => {
      const answer: Answer = JSON.parse(String(data))
      this.#waiting.get(answer.id)?.(answer)
      this.#waiting.delete(answer.id)
    })
  }

  static async attach(proxy: SpawnedProxy): Promise<ProcessProbe> {
    const [, url = ''] = ANNOUNCEMENT.exec(await proxy.waitForLine(ANNOUNCEMENT)) ?? []
    const socket = new WebSocket(url)
    await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject))
    await proxy.waitForLine(/Debugger attached/)
    proxy.stderr.length = 0 // the debugger's only, so far
    return new ProcessProbe(socket)
  }

  /** The heap after full collections. The second one takes memory that finalizers have released. */
  async heapBytes(): Promise<number> {
    await this.#call('HeapProfiler.collectGarbage')
    await this.#call('HeapProfiler.collectGarbage')
    return (await this.#call('Runtime.getHeapUsage')).result?.usedSize ?? Number.NaN
  }

  /** Sockets and timers that keep the process alive, by kind. Short operations, such as reads of files, are left out. */
  async resources(): Promise<Record<string, number>> {
    const expression = 'JSON.stringify(process.getActiveResourcesInfo())'
    const kinds: string[] = JSON.parse(
      String((await this.#call('Runtime.evaluate', { expression })).result?.result?.value),
    )
    const counts: Record<string, number> = {}
    for (const kind of kinds) if (LASTING.test(kind)) counts[kind] = (counts[kind] ?? 0) + 1
    return counts
  }

  /** Call it before the process ends, because Node waits for its debugger. */
  [Symbol.dispose](): void {
    this.#socket.terminate()
  }

  #call(method: string, params: Readonly<Record<string, unknown>> = {}): Promise<Answer> {
    const id = ++this.#calls
    return new Promise((resolve) => {
      this.#waiting.set(id, resolve)
      this.#socket.send(JSON.stringify({ id, method, params }))
    })
  }
}
