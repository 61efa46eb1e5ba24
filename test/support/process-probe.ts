/** The inside of a proxy's process, asked through Node's inspector: its heap behind a collection, and what keeps it alive. */

import { WebSocket } from 'ws'
import type { SpawnedProxy } from './spawn-proxy.ts'

/** For Node itself, when the process is started: without it there is nobody to ask. */
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
    proxy.stderr.length = 0 // so far the debugger's alone
    return new ProcessProbe(socket)
  }

  /** What is left behind full collections. The second one takes what finalizers have let go. */
  async heapBytes(): Promise<number> {
    await this.#call('HeapProfiler.collectGarbage')
    await this.#call('HeapProfiler.collectGarbage')
    return (await this.#call('Runtime.getHeapUsage')).result?.usedSize ?? Number.NaN
  }

  /** Sockets and timers that keep the process alive, by kind; reads of files and the like come and go. */
  async resources(): Promise<Record<string, number>> {
    const expression = 'JSON.stringify(process.getActiveResourcesInfo())'
    const kinds: string[] = JSON.parse(
      String((await this.#call('Runtime.evaluate', { expression })).result?.result?.value),
    )
    const counts: Record<string, number> = {}
    for (const kind of kinds) if (LASTING.test(kind)) counts[kind] = (counts[kind] ?? 0) + 1
    return counts
  }

  /** To be called before the process is to end: Node waits for its debugger. */
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
