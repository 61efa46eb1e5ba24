/** A wait that does not outlive the client. */

import type { ServerResponse } from 'node:http'

/** What `setTimeout` can hold; a greater number would fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1

/** Resolves after `ms`, or at once when the client goes away; tells whether there is still somebody to answer. */
export function pause(ms: number, response: ServerResponse): Promise<boolean> {
  if (ms <= 0 || response.closed) return Promise.resolve(!response.closed)
  return new Promise((resolve) => {
    const settle = (): void => {
      clearTimeout(timer)
      response.off('close', settle)
      resolve(!response.closed)
    }
    const timer = setTimeout(settle, Math.min(ms, MAX_TIMER_MS))
    response.on('close', settle)
  })
}
