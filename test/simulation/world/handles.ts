/**
 * Node's own `net`, unchanged, on simulated handles: its source is run once more, with a binding whose `TCP` is the one below. The
 * handle does what `LibuvStreamWrap` and libuv's `uv__stream_io` do (src/unix/stream.c of libuv 1.46).
 */

import { createRequire } from 'node:module'
import type { Loop, Watcher } from './loop.ts'
import type { Endpoint, Errno, Listener, Network } from './tcp.ts'

type NodeNet = typeof import('node:net')

interface Internals {
  internalBinding(name: string): Record<string, unknown>
  readonly primordials: unknown
}

const CODES: Readonly<Record<Errno, number>> = {
  ECONNRESET: -104,
  EPIPE: -32,
  ECONNREFUSED: -111,
  ETIMEDOUT: -110,
  ENOTCONN: -107,
}
const [EOF, EADDRINUSE, ECANCELED, EBADF] = [-4095, -98, -125, -9]
/** The most that one read brings, and the most reads in one turn. */
const READ_BYTES = 64 * 1024
const MOST_READS = 32

/** A request of Node's to the handle: its end is told by `oncomplete`. */
interface Request {
  oncomplete(...args: unknown[]): void
  error?: string
}

interface QueuedWrite {
  readonly request: Request
  /** Not copied: whoever changes them too early is noticed. */
  readonly pieces: Buffer[]
}

/** Who listens and connects here, and how its sockets reach the world. */
export interface Host {
  readonly name: string
  readonly loop: Loop
  readonly network: Network
}

/** Needs `--expose-internals`. */
export function simulatedNet(host: Host): NodeNet {
  const require = createRequire(import.meta.url)
  const { internalBinding, primordials } = require('internal/test/binding') as Internals
  const { compileFunction } = internalBinding('builtins') as {
    compileFunction(id: string): (...args: unknown[]) => void
  }
  const { kReadBytesOrError, kArrayBufferOffset, kBytesWritten, kLastWriteWasAsync, streamBaseState } = internalBinding(
    'stream_wrap',
  ) as Record<string, number> & { streamBaseState: Int32Array }
  const set = (field: number | undefined, value: number) => {
    streamBaseState[field as number] = value
  }

  class TCP implements Watcher {
    onread: (bytes?: ArrayBuffer) => Buffer | undefined = () => undefined
    onconnection: (status: number, client?: TCP) => void = () => undefined
    reading = false
    bytesRead = 0
    bytesWritten = 0
    readonly fd = 1
    #endpoint: Endpoint | undefined
    #address = { address: '127.0.0.1', port: 0 }
    #listener: Listener | undefined
    readonly #arrived: Endpoint[] = []
    #connecting: { readonly request: Request; result?: Errno | 'done' } | undefined
    #isReading = false
    #userBuffer: Buffer | undefined
    readonly #writes: QueuedWrite[] = []
    #shutdown: Request | undefined
    /** libuv's UV_HANDLE_WRITABLE. */
    #mayShutDown = false
    #hasToldEnd = false
    #isClosing = false

    // ---- listening

    bind(address: string, port: number): number {
      this.#address = { address, port: port === 0 ? host.network.freePort() : port }
      return 0
    }

    bind6(): number {
      return -99 // EADDRNOTAVAIL: this machine has no IPv6
    }

    listen(): number {
      const accepted = (endpoint: Endpoint) => {
        this.#arrived.push(endpoint)
        host.loop.wake(this)
      }
      this.#listener = { ...this.#address, accepted }
      return host.network.listen(this.#listener) ? 0 : EADDRINUSE
    }

    // ---- connecting

    connect(request: Request, address: string, port: number): number {
      const connecting: { readonly request: Request; result?: Errno | 'done' } = { request }
      this.#connecting = connecting
      this.#endpoint = host.network.connect(host.name, address, port, (error) => {
        connecting.result = error ?? 'done'
        host.loop.wake(this)
      })
      this.#watch()
      return 0
    }

    accept(endpoint: Endpoint): this {
      this.#endpoint = endpoint
      this.#mayShutDown = true
      this.#watch()
      return this
    }

    #watch(): void {
      if (this.#endpoint !== undefined) this.#endpoint.onChange = () => host.loop.wake(this)
    }

    getsockname(out: object): number {
      const { address, port } = this.#endpoint?.local ?? this.#address
      Object.assign(out, { address, port, family: 'IPv4' })
      return 0
    }

    getpeername(out: object): number {
      const peer = this.#endpoint?.peer
      if (peer === undefined || this.#endpoint?.isReset === true) return CODES.ENOTCONN
      Object.assign(out, { ...peer.local, family: 'IPv4' })
      return 0
    }

    // ---- the loop

    get isReady(): boolean {
      if (this.#isClosing) return false
      if (this.#arrived.length > 0) return true
      if (this.#connecting !== undefined) return this.#connecting.result !== undefined
      const endpoint = this.#endpoint
      if (endpoint === undefined) return false
      const canRead = this.#isReading && !this.#hasToldEnd && endpoint.isReadable
      return canRead || (this.#writes.length > 0 && endpoint.isWritable) || this.#isShutdownDue
    }

    get #isShutdownDue(): boolean {
      return this.#shutdown !== undefined && this.#writes.length === 0
    }

    poll(): void {
      while (this.#arrived.length > 0 && !this.#isClosing) {
        const client = new TCP().accept(this.#arrived.shift() as Endpoint)
        host.loop.call(() => this.onconnection(0, client))
      }
      if (this.#connecting?.result !== undefined) {
        const { request, result } = this.#connecting
        this.#connecting = undefined
        this.#mayShutDown = result === 'done'
        const status = result === 'done' ? 0 : CODES[result]
        host.loop.call(() => request.oncomplete(status, this, request, true, true))
        return
      }
      const endpoint = this.#endpoint
      if (endpoint === undefined) return
      const isHungUp = endpoint.isHungUp
      const isPartial = this.#read(endpoint)
      if (this.#isClosing) return
      // A reset that comes with data is told as an end: it was found together with them, and is not read.
      if (isHungUp && this.#isReading && isPartial && !this.#hasToldEnd) this.#tellEnd()
      if (!this.#isClosing && (isHungUp || endpoint.isWritable)) this.#write(endpoint)
    }

    /** True if less was there than there was room for. */
    #read(endpoint: Endpoint): boolean {
      for (let reads = 0; reads < MOST_READS && this.#isReading && !this.#hasToldEnd; reads++) {
        const size = this.#userBuffer?.length ?? READ_BYTES
        const bytes = endpoint.read(size)
        if (bytes === undefined) return false
        if (bytes === 'end') {
          this.#tellEnd()
          return false
        }
        if (typeof bytes === 'string') {
          this.#mayShutDown = false
          this.#isReading = false
          this.#tellRead(CODES[bytes])
          return false
        }
        this.bytesRead += bytes.length
        if (this.#userBuffer === undefined) {
          const copy = new ArrayBuffer(bytes.length)
          bytes.copy(Buffer.from(copy))
          this.#tellRead(bytes.length, copy)
        } else {
          bytes.copy(this.#userBuffer)
          this.#tellRead(bytes.length)
        }
        if (bytes.length < size) return true
      }
      return false
    }

    #tellEnd(): void {
      this.#hasToldEnd = true
      this.#isReading = false
      this.#tellRead(EOF)
    }

    #tellRead(result: number, bytes?: ArrayBuffer): void {
      host.loop.call(() => {
        set(kReadBytesOrError, result)
        set(kArrayBufferOffset, 0)
        const next = this.onread(bytes)
        if (next !== undefined) this.#userBuffer = next
      })
    }

    readStart(): number {
      if (this.#isClosing) return EBADF
      this.#isReading = true
      host.loop.wake(this)
      return 0
    }

    readStop(): number {
      this.#isReading = false
      return 0
    }

    useUserBuffer(buffer: Buffer): void {
      this.#userBuffer = buffer
    }

    // ---- writing

    writeBuffer(request: Request, bytes: Buffer): number {
      return this.#enqueue(request, [bytes])
    }

    writeLatin1String(request: Request, text: string): number {
      return this.#enqueue(request, [Buffer.from(text, 'latin1')])
    }

    writeUtf8String(request: Request, text: string): number {
      return this.#enqueue(request, [Buffer.from(text, 'utf8')])
    }

    writeAsciiString(request: Request, text: string): number {
      return this.#enqueue(request, [Buffer.from(text, 'latin1')])
    }

    writev(request: Request, chunks: readonly (Buffer | string)[], isAllBuffers: boolean): number {
      if (isAllBuffers) return this.#enqueue(request, chunks as Buffer[])
      const pieces: Buffer[] = []
      for (let i = 0; i < chunks.length; i += 2) {
        const chunk = chunks[i]
        pieces.push(typeof chunk === 'string' ? Buffer.from(chunk, chunks[i + 1] as BufferEncoding) : (chunk as Buffer))
      }
      return this.#enqueue(request, pieces)
    }

    #enqueue(request: Request, given: readonly Buffer[]): number {
      const total = given.reduce((sum, { length }) => sum + length, 0)
      set(kBytesWritten, total)
      set(kLastWriteWasAsync, 0)
      this.bytesWritten += total
      const endpoint = this.#endpoint
      if (endpoint === undefined || this.#isClosing) return EBADF
      const write = { request, pieces: [...given] }
      if (this.#writes.length === 0 && this.#connecting === undefined) {
        const result = writeSome(endpoint, write.pieces)
        if (typeof result === 'string') return CODES[result]
        if (write.pieces.length === 0) return 0
      }
      this.#writes.push(write)
      set(kLastWriteWasAsync, 1)
      host.loop.wake(this)
      return 0
    }

    #write(endpoint: Endpoint): void {
      const done: (() => void)[] = []
      for (let write = this.#writes[0]; write !== undefined; write = this.#writes[0]) {
        const result = writeSome(endpoint, write.pieces)
        if (typeof result !== 'string' && write.pieces.length > 0) break
        this.#writes.shift()
        const { request } = write
        const status = typeof result === 'string' ? CODES[result] : 0
        done.push(() => request.oncomplete(status, this, undefined))
        if (status !== 0) break
      }
      for (const tell of done) host.loop.call(tell)
      const shutdown = this.#shutdown
      if (this.#isClosing || shutdown === undefined || this.#writes.length > 0) return
      this.#shutdown = undefined
      const error = endpoint.shutdown()
      host.loop.call(() => shutdown.oncomplete(error === undefined ? 0 : CODES[error]))
    }

    shutdown(request: Request): number {
      if (!this.#mayShutDown || this.#isClosing) return CODES.ENOTCONN
      this.#mayShutDown = false
      this.#shutdown = request
      host.loop.wake(this)
      return 0
    }

    // ---- the end

    reset(done?: () => void): number {
      if (this.#shutdown !== undefined) return -22 // EINVAL, as libuv has it
      this.#endpoint?.reset()
      this.close(done)
      return 0
    }

    close(done?: () => void): void {
      if (this.#isClosing) return
      this.#isClosing = true
      this.#isReading = false
      this.#endpoint?.close()
      if (this.#listener !== undefined) host.network.unlisten(this.#listener)
      for (const endpoint of this.#arrived.splice(0)) endpoint.reset()
      const requests = [this.#connecting?.request, ...this.#writes.map(({ request }) => request), this.#shutdown]
      for (const request of requests) {
        if (request !== undefined) host.loop.closed(() => request.oncomplete(ECANCELED, this, request))
      }
      host.loop.closed(() => done?.())
    }

    setNoDelay = () => 0
    setKeepAlive = () => 0
    ref = () => undefined
    unref = () => undefined
    hasRef = () => true
  }

  const binding = { ...internalBinding('tcp_wrap'), TCP }
  const module_ = { exports: {} as NodeNet }
  const bindingOf = (name: string) => (name === 'tcp_wrap' ? binding : internalBinding(name))
  compileFunction('net')(module_.exports, require, module_, process, bindingOf, primordials)
  useTimersOf(host, module_.exports.Socket.prototype as unknown as SocketWithin, require('internal/timers').kTimeout)
  return module_.exports
}

interface SocketWithin {
  timeout?: number
  _onTimeout(): void
  _destroy(...args: unknown[]): void
  setTimeout(ms: number, told?: () => void): unknown
  once(event: string, told: () => void): unknown
  off(event: string, told: () => void): unknown
  [timeout: symbol]: unknown
}

/** `setTimeout` of sockets is the part of `net` that has timers (lib/internal/stream_base_commons.js). */
function useTimersOf(host: Host, socket: SocketWithin, kTimeout: symbol): void {
  const { _destroy } = socket
  socket.setTimeout = function (ms, told) {
    this.timeout = ms
    host.loop.timers.clear(this[kTimeout])
    this[kTimeout] = ms === 0 ? null : host.loop.timers.setTimeout(() => this._onTimeout(), ms)
    if (told !== undefined) (ms === 0 ? this.off : this.once).call(this, 'timeout', told)
    return this
  }
  socket._destroy = function (...args) {
    host.loop.timers.clear(this[kTimeout])
    _destroy.apply(this, args)
  }
}

/** Takes out of `pieces` what the kernel took. */
function writeSome(endpoint: Endpoint, pieces: Buffer[]): Errno | undefined {
  for (let first = pieces[0]; first !== undefined; first = pieces[0]) {
    const length = endpoint.write(first)
    if (typeof length === 'string') return length
    if (length < first.length) {
      pieces[0] = first.subarray(length)
      return undefined
    }
    pieces.shift()
  }
  return undefined
}
