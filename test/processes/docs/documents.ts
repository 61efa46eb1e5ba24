/** Parses the project's documents, so that tests can compare them with the program. */

import { projectFilesBelow, readProjectFile } from '../../support/project-files.ts'

export interface Document {
  /** Relative to the root of the project. */
  readonly path: string
  /** Without blocks of code. */
  readonly prose: string
  readonly text: string
}

const SHIPPED = ['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md', 'examples/README.md', 'bench/README.md']
const OTHERS = ['test/README.md', 'test/fuzz/README.md', 'test/soak/README.md']

/** The documents in the package. */
export const shippedDocuments = [...SHIPPED, ...projectFilesBelow('docs', '.md')].map(readDocument)
export const documents: readonly Document[] = [...shippedDocuments, ...OTHERS.map(readDocument)]

function readDocument(path: string): Document {
  const text = readProjectFile(path)
  return { path, text, prose: text.replaceAll(/^( *)```[\s\S]*?^\1```$/gm, '') }
}

export function documentAt(path: string): Document {
  const found = documents.find((document) => document.path === path)
  if (found === undefined) throw new Error(`there is no ${path}`)
  return found
}

/** All text in backquotes outside of code blocks. */
export function codeSpans({ prose }: Document): string[] {
  return [...prose.matchAll(/`([^`\n]+)`/g)].map(([, span = '']) => span)
}

/** Targets of links and images. */
export function linkTargets({ prose }: Document): string[] {
  return [...prose.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target = '']) => target)
}

/** The anchors of its headings, as GitHub makes them. */
export function anchorsOf({ prose }: Document): string[] {
  return [...prose.matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\w\s-]/g, '')
      .trim()
      .replaceAll(/\s/g, '-'),
  )
}

/** Rows of the table between `<!-- NAME:begin -->` and its end, cell by cell, without its head. */
export function tableBetween({ text }: Document, name: string): string[][] {
  const [, inner = ''] = text.split(new RegExp(`<!-- ${name}:(?:begin|end) -->`))
  return rowsOf(inner)
}

/** Rows of all tables below a heading, up to the next one of its level or above. */
export function tablesBelow({ text }: Document, heading: string): string[][] {
  const [marks = ''] = heading.split(' ')
  const [, after = ''] = text.split(`\n${heading}\n`)
  const [section = ''] = after.split(new RegExp(`\n#{1,${marks.length}} `))
  return rowsOf(section)
}

function rowsOf(text: string): string[][] {
  return text
    .split(/\n(?!\|)/)
    .flatMap((block) =>
      block
        .split('\n')
        .filter((line) => line.startsWith('|'))
        .slice(2),
    )
    .map((row) =>
      row
        .split(/(?<!\\)\|/)
        .slice(1, -1)
        .map((cell) => cell.trim()),
    )
}

export function unquoted(cell: string): string {
  return cell.replaceAll('`', '')
}
