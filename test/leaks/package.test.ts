/** The package contains the program and its documents, and nothing of the tests, of keys, or of the machine that built it. */

import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const EXPECTED =
  /^(?:(?:dist|config|deploy|docs|examples)\/|bench\/\w+\.md$|package\.json$|(?:README|CHANGELOG|CONTRIBUTING|SECURITY)\.md$|LICENSE$|Dockerfile$|docker-compose\.yml$)/
const PRIVATE = [
  /-----BEGIN [A-Z ]*PRIVATE KEY-----(?:\\n|\s)+[A-Za-z0-9+/]{20}/, // jose, which parses keys, contains only the header
  /\bBearer ey[\w-]{8,}/,
  /\b(?:ghp|npm|sk)_[A-Za-z0-9]{20,}/,
  /\/\/[^/\s:@]+:[^/\s:@]+@/,
  new RegExp(`${ROOT}|${homedir()}/`),
]

function packed(): string[] {
  const args = ['pack', '--dry-run', '--json', '--ignore-scripts']
  const answer = execFileSync('npm', args, { cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
  const listing: unknown = JSON.parse(answer)
  const [entry] = Array.isArray(listing) ? listing : Object.values(listing as object)
  return (entry as { files: { path: string }[] }).files.map(({ path }) => path)
}

test('the package contains the expected files, and no secret', () => {
  const paths = packed()
  expect(paths).toContain('dist/main.js')
  expect(paths.filter((path) => !EXPECTED.test(path))).toEqual([])
  const findings = paths.flatMap((path) => {
    const text = readFileSync(`${ROOT}/${path}`, 'utf8')
    return PRIVATE.filter((pattern) => pattern.test(text)).map((pattern) => `${path}: ${pattern}`)
  })
  expect(findings).toEqual([])
})
