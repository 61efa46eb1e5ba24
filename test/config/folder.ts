/** A folder for one test, removed after it. */

import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export interface Folder extends AsyncDisposable {
  readonly path: string
  /** The whole path of `name`. */
  at(name: string): string
  /** Writes a file that only its owner may read, and returns its whole path. */
  write(name: string, content: string | Uint8Array): Promise<string>
}

export async function makeFolder(): Promise<Folder> {
  const path = await mkdtemp(join(tmpdir(), 'org-access-proxy-'))
  const at = (name: string) => join(path, name)
  return {
    path,
    at,
    async write(name, content) {
      await writeFile(at(name), content, { mode: 0o600 })
      return at(name)
    },
    [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }),
  }
}
