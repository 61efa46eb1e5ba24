/** Looks at watched files, when the test says so. */

import { onTestFinished, vi } from 'vitest'
import { LOOK_MS } from '../../src/watched-file.ts'

/** Call it before a file is watched. Each call of what is returned is one look at all of them, from its start to its end. */
export function looksOnDemand(intervalMs = LOOK_MS): () => Promise<void> {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  onTestFinished(() => void vi.useRealTimers())
  return async () => {
    await readsEnd()
    vi.advanceTimersByTime(intervalMs)
    await readsEnd()
  }
}

async function readsEnd(): Promise<void> {
  const isReading = (resource: string) => resource === 'FSReqPromise' || resource === 'CloseReq'
  do await new Promise((resolve) => setImmediate(resolve))
  while (process.getActiveResourcesInfo().some(isReading))
}
