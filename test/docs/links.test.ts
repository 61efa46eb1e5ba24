/** Links and file names in documents lead to something that exists, inside the project. */

import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path/posix'
import { describe, expect, test } from 'vitest'
import { projectPath } from '../support/project-files.ts'
import { anchorsOf, codeSpans, documents, linkTargets } from './documents.ts'

/** A path with a folder, or a file of the source. */
const NAMES_A_FILE = /^(?:src|test|docs|deploy|examples|bench|fuzz|config)\/[\w./-]*$|^[\w/-]+\.ts$/

describe.each(documents.map((document) => [document.path, document] as const))('%s', (path, document) => {
  const [outside, inside] = [
    linkTargets(document).filter((target) => /^\w+:/.test(target)),
    linkTargets(document).filter((target) => !/^\w+:/.test(target)),
  ]

  test('links to targets that exist', () => {
    const broken = inside.filter((target) => !leadsSomewhere(path, target))
    expect(broken).toEqual([])
  })

  test('links to other sites over TLS only', () => {
    expect(outside.filter((target) => !target.startsWith('https://'))).toEqual([])
  })

  test('names files that exist', () => {
    const named = codeSpans(document).filter((span) => NAMES_A_FILE.test(span))
    // A name may begin at the root, at `src`, or at the folder of the document.
    const isMissing = (name: string) => ['', 'src', dirname(path)].every((folder) => !isThere(join(folder, name)))
    expect(named.filter(isMissing)).toEqual([])
  })

  test('names no path outside of the project', () => {
    expect(document.text).not.toMatch(/\.\.\/\.\.\/\.\.|\/(?:root|home|work)\/|\/tmp\//)
    expect(document.text).not.toMatch(/\bissue #?\d/i)
  })
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
