/** Names that only the resolver of this process knows, for one test. */

import dns, { type LookupAddress, type LookupOptions } from 'node:dns'
import { isIP } from 'node:net'
import { onTestFinished } from 'vitest'

type Done = (error: Error | null, found: LookupAddress[] | string, family?: number) => void

/** Any other name is resolved as always. */
export function resolving(name: string, ...addresses: readonly [string, ...string[]]): void {
  resolvingAfter(0, name, ...addresses)
}

/** The same, but the first `failures` questions fail. */
export function resolvingAfter(failures: number, name: string, ...addresses: readonly [string, ...string[]]): void {
  const { lookup } = dns
  let failuresLeft = failures
  const found = addresses.map((address) => ({ address, family: isIP(address) }))
  const resolve = (host: string, options: LookupOptions, done: Done) => {
    if (host !== name) lookup(host, options, done)
    else if (failuresLeft-- > 0) process.nextTick(done, Object.assign(new Error('for now'), FAILED))
    else if (options.all === true) process.nextTick(done, null, found)
    else process.nextTick(done, null, addresses[0], found[0]?.family)
  }
  Object.assign(dns, { lookup: resolve })
  onTestFinished(() => void Object.assign(dns, { lookup }))
}

const FAILED = { code: 'EAI_AGAIN', syscall: 'getaddrinfo' }
