/** A client of the running proxy's admin listener, and the command `healthcheck`, which asks it for `/livez`. */

import { type RequestOptions, request } from 'node:http'
import { formatAddress, type ListenAddress } from '../config/address.ts'

export interface Output {
  write(text: string): unknown
}

interface AdminResponse {
  readonly status: number
  readonly content: string
}

const DEADLINE_MS = 2_000
const MAX_CONTENT_BYTES = 64 * 1024 * 1024

/** Runs `healthcheck`, for containers without curl. Rejects if the proxy is not alive; the message says why. */
export async function checkHealth(address: ListenAddress | 'off'): Promise<0> {
  const { status } = await askAdmin(address, '/livez')
  if (status !== 200) throw new Error(`the admin listener answered ${status}`)
  return 0
}

/** Rejects with an error that names the address and the failure. */
export async function askAdmin(address: ListenAddress | 'off', path: string): Promise<AdminResponse> {
  if (address === 'off') throw new Error('admin.address is off: there is no admin listener')
  if (address.kind === 'tcp' && address.port === 0) {
    throw new Error('admin.address has port 0, so its port is not known: set a fixed port')
  }
  const place = `the admin listener at ${formatAddress(address)}`
  try {
    return await get({ ...placeOf(address), path })
  } catch (error) {
    if (error instanceof DOMException) throw new Error(`${place} did not answer within 2 s`)
    const reason = error instanceof Error && 'code' in error ? String(error.code) : 'no usable response'
    throw new Error(`${place} cannot be reached (${reason})`, { cause: error })
  }
}

function get(options: RequestOptions): Promise<AdminResponse> {
  return new Promise((resolve, reject) => {
    const signal = AbortSignal.timeout(DEADLINE_MS)
    const fail = (error: Error) => reject(signal.aborted ? signal.reason : error)
    const asking = request({ ...options, agent: false, signal }, (response) => {
      const chunks: Buffer[] = []
      let lengthBytes = 0
      response.on('error', fail)
      response.on('data', (chunk: Buffer) => {
        lengthBytes += chunk.length
        if (lengthBytes > MAX_CONTENT_BYTES) response.destroy(new Error('the response is too large'))
        else chunks.push(chunk)
      })
      response.on('end', () => {
        resolve({ status: response.statusCode ?? 0, content: Buffer.concat(chunks).toString('utf8') })
      })
    })
    asking.on('error', fail)
    asking.end()
  })
}

function placeOf(address: ListenAddress): RequestOptions {
  if (address.kind === 'unix') return { socketPath: address.path, host: 'localhost' }
  return { host: reachable(address.host), port: address.port }
}

/** An address of all interfaces cannot be connected to. */
function reachable(host: string): string {
  switch (host) {
    case 'localhost':
    case '0.0.0.0':
      return '127.0.0.1'
    case '::':
      return '::1'
    default:
      return host
  }
}
