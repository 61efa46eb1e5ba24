/** `healthcheck`: asks the running proxy's admin listener whether its event loop turns; for containers without curl. */

import { type RequestOptions, request } from 'node:http'
import type { ListenAddress } from '../config/address.ts'
import type { Output } from './output.ts'

const DEADLINE_MS = 2_000

/** Resolves with the exit code; says on `stderr` why it is not 0. */
export async function checkHealth(address: ListenAddress | 'off', stderr: Output): Promise<0 | 1> {
  const complaint = await complaintOf(address)
  if (complaint === undefined) return 0
  stderr.write(`healthcheck: ${complaint}\n`)
  return 1
}

async function complaintOf(address: ListenAddress | 'off'): Promise<string | undefined> {
  if (address === 'off') return 'admin.address is off, so there is nobody to ask'
  if (address.kind === 'tcp' && address.port === 0) return 'admin.address has port 0: give it a port that can be known'
  try {
    const status = await statusOf(address)
    return status === 200 ? undefined : `the admin listener answered ${status}`
  } catch (error) {
    if (error instanceof DOMException) return 'the admin listener does not answer within 2 s: does the event loop turn?'
    const reason = error instanceof Error && 'code' in error ? String(error.code) : 'no usable answer'
    return `the admin listener cannot be asked (${reason}): is the proxy running?`
  }
}

function statusOf(address: ListenAddress): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const signal = AbortSignal.timeout(DEADLINE_MS)
    const asking = request({ ...placeOf(address), path: '/livez', agent: false, signal }, (response) => {
      resolve(response.statusCode)
      response.destroy()
    })
    asking.on('error', (error) => reject(signal.aborted ? signal.reason : error))
    asking.end()
  })
}

function placeOf(address: ListenAddress): RequestOptions {
  if (address.kind === 'unix') return { socketPath: address.path, host: 'localhost' }
  return { host: reachable(address.host), port: address.port }
}

/** An address that stands for every interface is none that can be called. */
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
