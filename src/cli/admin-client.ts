/** A client of the running proxy's admin listener, and the command `healthcheck`, which asks it for `/livez`. */

import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { text } from 'node:stream/consumers'
import { formatAddress } from '../config/address.ts'
import type { ListenAddress } from '../listener/bind.ts'

const DEADLINE_MS = 2_000

/** Addresses of all interfaces, which cannot be connected to. */
const REACHABLE: Readonly<Record<string, string>> = { localhost: '127.0.0.1', '0.0.0.0': '127.0.0.1', '::': '::1' }

/** Runs `healthcheck`, for containers without curl. Rejects if the proxy is not alive; the message says why. */
export async function checkHealth(address: ListenAddress | 'off'): Promise<0> {
  const { status } = await askAdmin(address, '/livez')
  if (status !== 200) throw new Error(`the admin listener answered ${status}`)
  return 0
}

/** Rejects with an error that names the address and the failure. */
export async function askAdmin(address: ListenAddress | 'off', path: string) {
  if (address === 'off') throw new Error('admin.address is off: there is no admin listener')
  const place = `the admin listener at ${formatAddress(address)}`
  const signal = AbortSignal.timeout(DEADLINE_MS)
  const to =
    address.kind === 'unix'
      ? { socketPath: address.path, host: 'localhost' }
      : { port: address.port, host: REACHABLE[address.host] ?? address.host }
  try {
    const asking = request({ ...to, path, agent: false, signal })
    asking.on('error', () => undefined) // the two lines below report it
    const [response] = (await once(asking.end(), 'response')) as [IncomingMessage]
    return { status: response.statusCode ?? 0, content: await text(response) }
  } catch (error) {
    if (signal.aborted) throw new Error(`${place} did not answer within 2 s`, { cause: error })
    const reason = error instanceof Error && 'code' in error ? String(error.code) : 'no usable response'
    throw new Error(`${place} cannot be reached (${reason})`, { cause: error })
  }
}
