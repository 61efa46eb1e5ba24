/** The program accepts the commands in the documents. */

import { expect, test } from 'vitest'
import { parseArguments } from '../../../src/cli/arguments.ts'
import { parseSwitches } from '../../../src/sandbox/switches.ts'
import { codeSpans, documentAt, documents, tablesBelow, unquoted } from './documents.ts'

/** A call of the program, after `node` and its options if it is called by its file. */
const CALL = /^(?:docker exec \S+ )?(?:node (?:-\S+ )*\S*dist\/main\.js|org-access-proxy)((?: (?:[\w./=:-]+|"[^"]*"))*)/

const calls = documents.flatMap((document) => {
  const blocks = [...document.text.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, block = '']) => block)
  const lines = blocks.flatMap((block) => block.replaceAll(/ *\\\n */g, ' ').split('\n'))
  return [...lines, ...codeSpans(document)]
    .map((line) => CALL.exec(line)?.[1])
    .filter((args) => args !== undefined)
    .map((args) => ({ path: document.path, args: wordsOf(args) }))
})

test('the program accepts each command', () => {
  expect(calls.length).toBeGreaterThan(20)
  expect(calls.filter(({ args }) => !isUnderstood(args))).toEqual([])
})

test('examples/README.md names each switch of the sandbox with its default', () => {
  const rows = tablesBelow(documentAt('examples/README.md'), '## Switches of the sandbox')
  const shown = new Map(
    rows.flatMap(([names = '', value = '']) => names.split(', ').map((name) => [unquoted(name), unquoted(value)])),
  )
  for (const [name, value] of Object.entries(parseSwitches({}))) {
    const expected = name === 'appSecret' ? 'that of config/sandbox.secret' : asWritten(value)
    expect(`${name}: ${shown.get(name)}`).toBe(`${name}: ${expected}`)
  }
})

function wordsOf(args: string): string[] {
  return (args.match(/"[^"]*"|\S+/g) ?? []).map((word) => word.replaceAll('"', ''))
}

function isUnderstood(args: readonly string[]): boolean {
  try {
    parseArguments(args)
    return true
  } catch {
    return false
  }
}

function asWritten(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(asWritten).join(', ')}]`
  return typeof value === 'string' ? `'${value}'` : String(value)
}
