/** Links and file names in documents lead to something that exists, inside the project. */

import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path/posix'
import { expect, test } from 'vitest'
import { projectPath } from '../../support/project-files.ts'
import { anchorsOf, codeSpans, type Document, documents, linkTargets } from './documents.ts'

/** A path with a folder, or a file of the source. */
const NAMES_A_FILE = /^(?:src|test|docs|deploy|examples|bench|config)\/[\w./-]*$|^[\w/-]+\.ts$/

/** What `find` finds in each document, with the path of the document. */
function inAll(find: (document: Document) => readonly string[]): string[] {
  return documents.flatMap((document) => find(document).map((found) => `${document.path}: ${found}`))
}

test('documents link to targets that exist, and to other sites over TLS only', () => {
  const isGood = (path: string, target: string) =>
    /^\w+:/.test(target) ? target.startsWith('https://') : leadsSomewhere(path, target)
  expect(inAll((document) => linkTargets(document).filter((target) => !isGood(document.path, target)))).toEqual([])
})

test('documents name files that exist', () => {
  // A name may begin at the root, at `src`, or at the folder of the document.
  const isMissing = (path: string, name: string) => ['', 'src', dirname(path)].every((at) => !isThere(join(at, name)))
  const missing = inAll((document) =>
    codeSpans(document).filter((span) => NAMES_A_FILE.test(span) && isMissing(document.path, span)),
  )
  expect(missing).toEqual([])
})

test('documents name no path outside of the project', () => {
  const OUTSIDE = /\.\.\/\.\.\/\.\.|\/(?:root|home|work)\/|\/tmp\/|\bissue #?\d/gi
  expect(inAll(({ text }) => text.match(OUTSIDE) ?? [])).toEqual([])
})

function leadsSomewhere(from: string, target: string): boolean {
  const [file = '', anchor] = target.split('#')
  const path = file === '' ? from : join(dirname(from), file)
  if (path.startsWith('..') || !isThere(path)) return false
  if (anchor === undefined) return true
  const document = documents.find((candidate) => candidate.path === path)
  return document !== undefined && anchorsOf(document).includes(anchor)
}

function isThere(path: string): boolean {
  return existsSync(projectPath(path))
}
