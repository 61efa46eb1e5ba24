/** The files of the project. */

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path/posix'
import { fileURLToPath } from 'node:url'

const root = new URL('../../', import.meta.url)

/** `path` is relative to the root of the project. */
export function projectPath(path: string): string {
  return fileURLToPath(new URL(path, root))
}

export function readProjectFile(path: string): string {
  return readFileSync(new URL(path, root), 'utf8')
}

/** Paths of all files below a folder with this ending. */
export function projectFilesBelow(folder: string, ending: string): string[] {
  return readdirSync(projectPath(folder), { withFileTypes: true }).flatMap((entry) => {
    if (entry.name === 'node_modules') return []
    const path = join(folder, entry.name)
    if (entry.isDirectory()) return projectFilesBelow(path, ending)
    return entry.name.endsWith(ending) ? [path] : []
  })
}

interface Manifest {
  readonly name: string
  readonly version: string
  readonly license: string
  readonly engines: { readonly node: string }
  readonly files: readonly string[]
  readonly scripts: Readonly<Record<string, string>>
  readonly dependencies: Readonly<Record<string, string>>
  readonly devDependencies: Readonly<Record<string, string>>
}

export function readManifest(): Manifest {
  return JSON.parse(readProjectFile('package.json'))
}
