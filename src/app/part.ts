/** What `app.ts` has a list of. */

import type { Config } from '../config/schema.ts'

/** Puts in use what was made ready, or drops it if that is not taken. Cannot fail. */
export type Commit = (isTaken?: boolean) => void

/** A part of the running program. All that it needs of the settings, it takes when a configuration is taken over. */
export interface Part {
  /** Makes ready what can fail; undefined if there is nothing to do. If it rejects, nothing has changed. */
  prepare?(config: Config): Promise<Commit> | Commit | undefined
  /** Called when all parts have committed. Cannot fail. */
  use?(config: Config): void
  close?(): unknown
}

/** All or nothing: rejects with the error of the part that cannot take `config` over; then none has changed. */
export async function takeOver(parts: readonly Part[], config: Config): Promise<void> {
  const commits: Commit[] = []
  try {
    for (const part of parts) {
      const commit = await part.prepare?.(config)
      if (commit !== undefined) commits.push(commit)
    }
  } catch (error) {
    for (const commit of commits) commit(false)
    throw error
  }
  // Nothing below waits, so later requests see the whole change.
  for (const commit of commits) commit()
  for (const part of parts) part.use?.(config)
}

/** The last one first: each is built on those before it. */
export async function closeAll(parts: readonly Part[]): Promise<void> {
  for (const part of parts.toReversed()) await part.close?.()
}
