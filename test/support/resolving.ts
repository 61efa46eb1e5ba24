/** Names that only the resolver of this process knows, for one test. */

import dns, { type LookupAddress, type LookupOptions } from 'node:dns'
import { isIP } from 'node:net'
import { onTestFinished } from 'vitest'

type Done = (error: Error | null, found: LookupAddress[] | string, family?: number) => void
/** The addresses, or what happens instead. */
type Answer = readonly [string, ...string[]] | 'failure' | 'silence'

/** Any other name is resolved as always. */
export function resolving(name: string, ...addresses: readonly [string, ...string[]]): void {
  resolvingAs(name, () => addresses)
}

/** The same, but the first `failures` questions fail. */
export function resolvingAfter(failures: number, name: string, ...addresses: readonly [string, ...string[]]): void {
  let failuresLeft = failures
  resolvingAs(name, () => (failuresLeft-- > 0 ? 'failure' : addresses))
}

/** Asked for each look-up. Returns a function that ends all silence with a failure, as a resolver does at last. */
export function resolvingAs(name: string, answer: () => Answer): () => void {
  const { lookup } = dns
  const silent: Done[] = []
  const fail = (done: Done) => process.nextTick(done, Object.assign(new Error('for now'), FAILED))
  const resolve = (host: string, options: LookupOptions, done: Done) => {
    const found = host === name ? answer() : undefined
    if (found === undefined) lookup(host, options, done)
    else if (found === 'failure') fail(done)
    else if (found === 'silence') silent.push(done)
    else if (options.all === true)
      process.nextTick(
        done,
        null,
        found.map((address) => ({ address, family: isIP(address) })),
      )
    else process.nextTick(done, null, found[0], isIP(found[0]))
  }
  Object.assign(dns, { lookup: resolve })
  onTestFinished(() => void Object.assign(dns, { lookup }))
  return () => {
    for (const done of silent.splice(0)) fail(done)
  }
}

const FAILED = { code: 'EAI_AGAIN', syscall: 'getaddrinfo' }
