/** What V8 is told at start: a sidecar shares the memory of a machine with the apps that it serves. */

import { setFlagsFromString } from 'node:v8'

/**
 * undici's HTTP parser is one large function in WebAssembly. Node 20 compiles it a second time, and better, upon the first
 * response: that takes 30 MiB for a while, of which the allocator keeps 10. With this budget (bytes of code run, as V8
 * reckons) it happens after some hundred responses, for those who have them.
 */
const WASM_TIERING_BUDGET = 100_000_000

/** To be called before there is a connection. */
export function limitMemory(): void {
  setFlagsFromString(`--wasm-tiering-budget=${WASM_TIERING_BUDGET}`)
}
