/**
 * A client of the running proxy's admin listener, and the command `healthcheck`, which asks it for `/livez`. Made of a socket:
 * Node's own client of HTTP would take a part of the time of a small command to load.
 */

import { once } from 'node:events'
import { connect } from 'node:net'
import { formatAddress } from '../config/address.ts'
import type { ListenAddress } from '../listener/bind.ts'

/** Longer than a busy proxy needs for an answer that waits for nothing. */
const DEADLINE_MS = 2_000

/** Addresses of all interfaces, which cannot be connected to. */
const REACHABLE: Readonly<Record<string, string>> = {
  localhost: '127.0.0.1',
  '0.0.0.0': '127.0.0.1',
  '::': '127.0.0.1',
}

/** Runs `healthcheck`, for containers without curl. Rejects if the proxy is not alive; the message says why. */
export async function checkHealth(address: ListenAddress | 'off'): Promise<0> {
  const { status } = await askAdmin(address, '/livez')
  if (status !== 200) throw new Error(`the admin listener answered ${status}`)
  return 0
}

/** The content of a good answer. @throws with the advice of any other */
export function contentOf({ status, content }: { readonly status: number; readonly content: string }): string {
  if (status === 200) return content
  const [, detail = '"no detail"'] = /"detail":("(?:[^"\\]|\\.)*")/.exec(content) ?? []
  throw new Error(`the admin listener answered ${status}: ${JSON.parse(detail)}`)
}

/** Rejects with an error that names the address and the failure. */
export async function askAdmin(
  address: ListenAddress | 'off',
  path: string,
  method: 'GET' | 'POST' = 'GET',
  deadlineMs = DEADLINE_MS,
) {
  if (address === 'off') throw new Error('admin.address is off: there is no admin listener')
  const listener = `the admin listener at ${formatAddress(address)}`
  const { host, ...to } =
    address.kind === 'unix'
      ? { path: address.path, host: 'localhost' }
      : { port: address.port, host: REACHABLE[address.host] ?? address.host }
  const authority = address.kind === 'unix' ? host : formatAddress({ ...address, host })
  const socket = connect({ host, ...to })
  // No `AbortSignal.timeout`: a small command would be busy loading it.
  const late = new Error(`${listener} did not answer within ${deadlineMs / 1_000} s`)
  const timer = Number.isFinite(deadlineMs) ? setTimeout(() => socket.destroy(late), deadlineMs) : undefined
  try {
    // HTTP/1.0: the answer ends with the connection, and has no chunks.
    socket.write(`${method} ${path} HTTP/1.0\r\nhost: ${authority}\r\ncontent-length: 0\r\n\r\n`)
    const received: Buffer[] = []
    socket.on('data', (chunk) => received.push(chunk))
    await once(socket, 'end')
    const [, status, content = ''] =
      /^HTTP\/1\.1 (\d{3}) .*?\r\n\r\n(.*)$/s.exec(Buffer.concat(received).toString('utf8')) ?? []
    if (status === undefined) throw new Error('the answer is not HTTP')
    return { status: Number(status), content }
  } catch (error) {
    if (error === late) throw late
    const reason = error instanceof Error && 'code' in error ? String(error.code) : 'no usable response'
    throw new Error(`${listener} cannot be reached (${reason})`, { cause: error })
  } finally {
    clearTimeout(timer)
    socket.destroy()
  }
}
