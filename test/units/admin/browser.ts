/** Debian's Chromium without a window, driven over its own protocol: its requests, its complaints, and what it shows. */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { WebSocket } from 'ws'
import { eventually } from '../../support/changes.ts'
import { programPath } from '../../support/programs.ts'

/** Without the switches for background services, it calls hosts of its maker at every start. */
const ARGUMENTS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-dev-shm-usage',
  '--no-first-run',
  '--remote-debugging-port=0',
  '--disable-quic',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  // Like after a rebinding: all these names lead to this machine.
  '--host-resolver-rules=MAP *.example 127.0.0.1',
]
const DEADLINE_MS = 15_000

interface Message {
  readonly id?: number
  readonly sessionId?: string
  readonly method?: string
  readonly params?: unknown
  readonly result?: unknown
  readonly error?: { readonly message: string }
}

interface Waiting {
  readonly resolve: (result: unknown) => void
  readonly reject: (error: Error) => void
}

export class Browser implements AsyncDisposable {
  readonly #process: ChildProcess
  readonly #profile: string
  readonly #socket: WebSocket
  readonly #waiting = new Map<number, Waiting>()
  readonly #pages = new Map<string, Page>()
  #lastId = 0

  private constructor(process: ChildProcess, profile: string, socket: WebSocket) {
    this.#process = process
    this.#profile = profile
    this.#socket = socket
    socket.on('message', (data) => this.#receive(JSON.parse(String(data))))
  }

  static async start(): Promise<Browser> {
    const profile = mkdtempSync(join(tmpdir(), 'browser-'))
    const child = spawn(programPath('chromium'), [...ARGUMENTS, `--user-data-dir=${profile}`, 'about:blank'], {
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    const socket = new WebSocket(await devToolsAddress(child))
    await once(socket, 'open')
    return new Browser(child, profile, socket)
  }

  async open(url: string): Promise<Page> {
    const { targetId } = (await this.send('Target.createTarget', { url: 'about:blank' })) as { targetId: string }
    const attached = await this.send('Target.attachToTarget', { targetId, flatten: true })
    const { sessionId } = attached as { sessionId: string }
    const page = new Page((method, params) => this.send(method, params, sessionId))
    this.#pages.set(sessionId, page)
    await page.go(url)
    return page
  }

  send(method: string, params: object = {}, sessionId?: string): Promise<unknown> {
    const id = ++this.#lastId
    this.#socket.send(JSON.stringify({ id, method, params, sessionId }))
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject })
    })
  }

  #receive({ id, sessionId, method, params, result, error }: Message): void {
    if (id === undefined) {
      this.#pages.get(sessionId ?? '')?.happened(method ?? '', params)
      return
    }
    const waiting = this.#waiting.get(id)
    this.#waiting.delete(id)
    if (error === undefined) waiting?.resolve(result)
    else waiting?.reject(new Error(error.message))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const exited = once(this.#process, 'exit')
    // On request, it ends after its helpers. If it was killed, they would go on writing into the profile.
    this.send('Browser.close').catch(() => undefined)
    const deadline = setTimeout(() => this.#process.kill('SIGKILL'), DEADLINE_MS)
    await exited
    clearTimeout(deadline)
    this.#socket.terminate()
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 5 })
  }
}

async function devToolsAddress(child: ChildProcess): Promise<string> {
  if (child.stderr === null) throw new Error('no pipe to the browser')
  for await (const line of createInterface({ input: child.stderr })) {
    const address = /^DevTools listening on (ws:\S+)$/.exec(line)?.[1]
    if (address === undefined) continue
    child.stderr.resume() // later output is dropped, but the pipe must not fill up
    return address
  }
  throw new Error('the browser did not start')
}

export class Page {
  readonly #send: (method: string, params?: object) => Promise<unknown>
  /** Addresses of all requests. */
  readonly requests: string[] = []
  /** Errors of the console: exceptions, refused resources, violated policies. */
  readonly complaints: string[] = []

  constructor(send: (method: string, params?: object) => Promise<unknown>) {
    this.#send = send
  }

  async go(url: string): Promise<void> {
    for (const domain of ['Page', 'Network', 'Runtime', 'Log']) await this.#send(`${domain}.enable`)
    await this.#send('Page.navigate', { url })
    await this.until(`document.readyState === 'complete' && location.href !== 'about:blank'`)
  }

  happened(method: string, params: unknown): void {
    if (method === 'Network.requestWillBeSent') {
      this.requests.push((params as { request: { url: string } }).request.url)
    }
    if (method === 'Log.entryAdded') this.complaints.push((params as { entry: { text: string } }).entry.text)
    if (method === 'Runtime.exceptionThrown') this.complaints.push(JSON.stringify(params))
  }

  /** The value of an expression, which must survive JSON. */
  async evaluate<T>(expression: string): Promise<T> {
    const answer = await this.#send('Runtime.evaluate', { expression, returnByValue: true, awaitPromise: true })
    const { result, exceptionDetails } = answer as { result: { value: T }; exceptionDetails?: object }
    if (exceptionDetails !== undefined) throw new Error(JSON.stringify(exceptionDetails))
    return result.value
  }

  async until(condition: string): Promise<void> {
    await eventually(() => this.evaluate<boolean>(`Boolean(${condition})`).catch(() => false), condition, DEADLINE_MS)
  }

  async show(width: number, height: number, scheme: 'light' | 'dark'): Promise<void> {
    const isMobile = width < 600
    await this.#send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: isMobile })
    await this.#send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] })
  }
}
