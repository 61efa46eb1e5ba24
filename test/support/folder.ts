/** A folder for one test or one file, removed after it. */

import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'

export interface Folder extends AsyncDisposable {
  readonly path: string
  /** The whole path of `name`. */
  at(name: string): string
  /** Writes a file that only its owner may read, and returns its whole path. */
  write(name: string, content: string | Uint8Array): Promise<string>
}

export async function makeFolder(): Promise<Folder> {
  const path = await mkdtemp(join(tmpdir(), 'oap-'))
  const at = (name: string) => join(path, name)
  return {
    path,
    at,
    async write(name, content) {
      await writeFile(at(name), content, { mode: 0o600 })
      return at(name)
    },
    [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true, maxRetries: 5 }),
  }
}

/** For one file or `describe`, at whose end it is removed. */
export async function folderForFile(): Promise<Folder> {
  const folder = await makeFolder()
  afterAll(() => folder[Symbol.asyncDispose]())
  return folder
}
