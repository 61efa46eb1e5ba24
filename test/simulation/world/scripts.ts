/** What two sockets do to each other, in twenty scripts. They run over real sockets and over simulated ones, and must tell the same. */

import type { Server, Socket } from 'node:net'

type NodeNet = typeof import('node:net')

/** Where a script runs. */
export interface Ground {
  readonly net: NodeNet
  readonly setTimeout: (callback: () => void, delayMs: number) => unknown
  readonly setImmediate: (callback: () => void) => unknown
  /** The process stands still, inside of a callback. */
  readonly block: (ms: number) => void
}

interface Options {
  readonly client?: object
  readonly server?: object
}

/** Two connected sockets, and what each of them has told. */
class Pair {
  readonly ground: Ground
  readonly events: Record<'client' | 'server' | 'order', string[]> = { client: [], server: [], order: [] }
  #changed: () => void = () => undefined
  #hangs: () => void = () => undefined
  listener!: Server
  client!: Socket
  server!: Socket

  constructor(ground: Ground) {
    this.ground = ground
  }

  async connect({ client = {}, server = {} }: Options = {}): Promise<void> {
    const { net } = this.ground
    this.listener = net.createServer({ allowHalfOpen: true, ...server }, (socket) => {
      this.server = socket
      this.#watch('server', socket)
    })
    await new Promise<void>((resolve) => this.listener.listen(0, '127.0.0.1', resolve))
    const { port } = this.listener.address() as { port: number }
    this.client = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true, ...client })
    this.#watch('client', this.client)
    await this.until('client', 'connect')
    await this.#untilTrue(() => this.server !== undefined)
  }

  #watch(who: 'client' | 'server', socket: Socket): void {
    socket.on('connect', () => this.tell(who, 'connect'))
    socket.on('data', (bytes) => this.count(who, bytes.length))
    socket.on('end', () => this.tell(who, 'end'))
    socket.on('finish', () => this.tell(who, 'finish'))
    socket.on('error', (error: NodeJS.ErrnoException) => this.tell(who, `error ${error.syscall} ${error.code}`))
    socket.on('close', (isError) => this.tell(who, `close ${isError}`))
  }

  tell(who: 'client' | 'server' | 'order', event: string): void {
    this.events[who].push(event)
    this.#changed()
  }

  /** How they are cut is the network's. */
  count(who: 'client' | 'server', bytes: number): void {
    const last = this.events[who].at(-1) ?? ''
    const sum = last.startsWith('data ') ? Number(last.slice('data '.length)) : undefined
    if (sum === undefined) this.tell(who, `data ${bytes}`)
    else {
      this.events[who][this.events[who].length - 1] = `data ${sum + bytes}`
      this.#changed()
    }
  }

  until(who: 'client' | 'server' | 'order', event: string): Promise<void> {
    return this.#untilTrue(() => this.events[who].includes(event))
  }

  /** Until both have closed. */
  async closed(): Promise<void> {
    const hasClosed = (who: 'client' | 'server') => this.events[who].some((event) => event.startsWith('close'))
    await this.#untilTrue(() => hasClosed('client') && hasClosed('server'))
  }

  #untilTrue(condition: () => boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#hangs = () => reject(new Error('hangs'))
      this.#changed = () => {
        if (!condition()) return
        this.#changed = () => undefined
        resolve()
      }
      this.#changed()
      if (!condition()) this.#poll(condition)
    })
  }

  #poll(condition: () => boolean, leftMs = LONGEST_MS): void {
    this.#changed()
    if (condition()) return
    if (leftMs > 0) this.ground.setTimeout(() => this.#poll(condition, leftMs - 5), 5)
    else this.#hangs()
  }

  /** So long that all packets have arrived. */
  settle(): Promise<void> {
    return new Promise((resolve) => this.ground.setTimeout(() => resolve(), 30))
  }

  end(): void {
    this.client?.destroy()
    this.server?.destroy()
    this.listener?.close()
  }
}

type Script = (pair: Pair) => Promise<void>

/** Then what is waited for does not happen. */
const LONGEST_MS = 3_000
const MUCH = Buffer.alloc(6_000_000)

export const SCRIPTS: Readonly<Record<string, Script>> = {
  'both end': async (pair) => {
    await pair.connect()
    pair.client.end('hello')
    await pair.until('server', 'end')
    pair.server.end('answer')
    await pair.closed()
  },
  'a half that has ended still reads': async (pair) => {
    await pair.connect()
    pair.client.end()
    await pair.until('server', 'end')
    pair.server.write('one')
    await pair.until('client', 'data 3')
    pair.server.end('two')
    await pair.closed()
  },
  'a reset of an idle connection': async (pair) => {
    await pair.connect()
    pair.client.resetAndDestroy()
    await pair.closed()
  },
  'a reset behind data, to one that does not read': async (pair) => {
    await pair.connect({ server: { pauseOnConnect: true } })
    pair.client.write('data')
    await pair.settle()
    pair.client.resetAndDestroy()
    await pair.settle()
    pair.tell('server', `${pair.server.localAddress !== undefined}`)
    pair.server.resume()
    await pair.until('server', 'end')
    pair.server.destroy()
    await pair.closed()
  },
  'a reset, to one that does not read and has nothing': async (pair) => {
    await pair.connect({ server: { pauseOnConnect: true } })
    await pair.settle()
    pair.client.resetAndDestroy()
    await pair.settle()
    pair.server.resume()
    await pair.closed()
  },
  'an empty write finds a reset': async (pair) => {
    await pair.connect({ server: { pauseOnConnect: true } })
    await pair.settle()
    pair.client.resetAndDestroy()
    await pair.settle()
    pair.server.write('')
    await pair.closed()
  },
  'closed with bytes that nobody has read': async (pair) => {
    await pair.connect({ server: { pauseOnConnect: true } })
    pair.client.write('unread')
    await pair.settle()
    pair.server.destroy()
    await pair.closed()
  },
  'a write to one that has closed': async (pair) => {
    await pair.connect()
    pair.server.destroy()
    await pair.until('client', 'end')
    pair.client.write('one')
    await pair.settle()
    pair.client.write('two')
    await pair.closed()
  },
  'a reader that pauses holds the writer': async (pair) => {
    await pair.connect({ server: { pauseOnConnect: true } })
    pair.client.write(MUCH, () => pair.tell('client', 'written'))
    await pair.settle()
    pair.tell('client', `holds ${pair.client.writableLength > 0}`)
    pair.server.resume()
    await pair.until('client', 'written')
    pair.client.end()
    await pair.until('server', 'end')
    pair.server.end()
    await pair.closed()
  },
  'nobody listens': async (pair) => {
    await pair.connect()
    const { port } = pair.listener.address() as { port: number }
    await new Promise<void>((resolve) => {
      pair.listener.close(() => resolve())
      pair.end()
    })
    const socket = pair.ground.net.connect(port, '127.0.0.1')
    socket.on('error', (error: NodeJS.ErrnoException) => pair.tell('order', `${error.syscall} ${error.code}`))
    await pair.until('order', 'connect ECONNREFUSED')
  },
  'given up while it connects': async (pair) => {
    await pair.connect()
    const { port } = pair.listener.address() as { port: number }
    const socket = pair.ground.net.connect(port, '127.0.0.1')
    socket.on('connect', () => pair.tell('order', 'connect'))
    socket.on('close', (isError) => pair.tell('order', `close ${isError}`))
    socket.destroy()
    await pair.until('order', 'close false')
  },
  'an end behind much': async (pair) => {
    await pair.connect({ server: { pauseOnConnect: true } })
    pair.client.end(MUCH)
    await pair.settle()
    pair.server.resume()
    await pair.until('server', 'end')
    pair.server.end()
    await pair.closed()
  },
  'destroyed with writes that wait': async (pair) => {
    await pair.connect({ server: { pauseOnConnect: true } })
    pair.client.write(MUCH, (error) => pair.tell('client', `written ${error?.message}`))
    pair.client.write(MUCH, (error) => pair.tell('client', `written ${error?.message}`))
    await pair.settle()
    pair.client.destroy()
    await pair.until('client', 'close false')
  },
  'a reset to one whose writes wait': async (pair) => {
    await pair.connect({ server: { pauseOnConnect: true } })
    pair.client.write(MUCH)
    await pair.settle()
    pair.server.resetAndDestroy()
    await pair.closed()
  },
  'several writes at once': async (pair) => {
    await pair.connect()
    pair.client.cork()
    pair.client.write('head')
    pair.client.write(Buffer.alloc(10))
    pair.client.write('ü', 'latin1')
    pair.client.uncork()
    await pair.until('server', 'data 15')
    pair.client.end()
    pair.server.end()
    await pair.closed()
  },
  'reads into a buffer of its own': async (pair) => {
    const buffer = Buffer.alloc(1_000)
    const callback = (length: number) => {
      pair.count('client', length)
      return true
    }
    await pair.connect({ client: { onread: { buffer, callback } } })
    pair.server.end(Buffer.alloc(100_000))
    await pair.until('client', 'end')
    pair.client.end()
    await pair.closed()
  },
  'a reader that wants no more for now': async (pair) => {
    let mayRead = false
    let bytes = 0
    const callback = (length: number) => {
      bytes += length
      return mayRead
    }
    await pair.connect({ client: { onread: { buffer: Buffer.alloc(1_000), callback } } })
    pair.server.end(Buffer.alloc(3_000))
    await pair.settle()
    mayRead = true
    pair.tell('client', `has stopped ${bytes < 3_000}`)
    pair.client.resume()
    await pair.until('client', 'end')
    pair.tell('client', `has read ${bytes}`)
    pair.client.end()
    await pair.closed()
  },
  'both end at once': async (pair) => {
    await pair.connect()
    pair.client.end()
    pair.server.end()
    await pair.closed()
  },
  'a reset behind an end of the other': async (pair) => {
    await pair.connect()
    pair.client.end()
    await pair.until('server', 'end')
    pair.server.resetAndDestroy()
    await pair.closed()
  },
  'a connection that was reset has no peer': async (pair) => {
    await pair.connect({ server: { pauseOnConnect: true } })
    pair.client.write('data')
    await pair.settle()
    pair.client.resetAndDestroy()
    await pair.settle()
    pair.tell('server', `peer ${pair.server.remoteAddress} local ${pair.server.localAddress}`)
    pair.server.destroy()
    await pair.closed()
  },
  'what follows one callback': async (pair) => {
    await pair.connect()
    pair.server.once('data', () => {
      pair.ground.setTimeout(() => pair.tell('order', 'timer'), 0)
      pair.ground.setImmediate(() => {
        pair.tell('order', 'immediate')
        process.nextTick(() => pair.tell('order', 'tick of the immediate'))
      })
      pair.ground.setImmediate(() => pair.tell('order', 'second immediate'))
      process.nextTick(() => pair.tell('order', 'tick'))
      Promise.resolve().then(() => pair.tell('order', 'promise'))
      pair.ground.block(5)
    })
    pair.client.write('x')
    await pair.until('order', 'timer')
  },
  'timers of different lengths, behind a standstill': async (pair) => {
    await pair.connect()
    for (const delayMs of [10, 30, 20, 10]) {
      pair.ground.setTimeout(() => {
        pair.tell('order', `${delayMs}`)
        pair.ground.setImmediate(() => pair.tell('order', `immediate of ${delayMs}`))
      }, delayMs)
    }
    pair.ground.setImmediate(() => pair.ground.block(100))
    await pair.until('order', 'immediate of 30')
  },
  'a time limit that passed while the process stood still, and data': async (pair) => {
    await pair.connect()
    pair.server.once('data', () => {
      pair.client.write('second')
      pair.server.on('data', () => pair.tell('order', 'data'))
      pair.ground.setTimeout(() => pair.tell('order', 'timer'), 20)
      pair.ground.block(100)
    })
    pair.client.write('first')
    await pair.until('order', 'data')
  },
}

/** What the sockets of one script told. */
export async function perform(name: string, ground: Ground): Promise<string> {
  const pair = new Pair(ground)
  await SCRIPTS[name]?.(pair).catch((error: Error) => pair.tell('order', error.message))
  const { client, server, order } = pair.events
  pair.end()
  return `client: ${client.join(', ')}\nserver: ${server.join(', ')}\norder: ${order.join(', ')}`
}
