import { spawnSync } from 'node:child_process'
import { expect, test } from 'vitest'

/** The short form, and what it needs Node 20 for: `test/simulation/simulation.test.ts`. */
test.skipIf(!process.versions.node.startsWith('20.'))('a minute of fixed stories breaks no rule, on Node 20', () => {
  const command = ['test/simulation/main.mjs', '--from', '1', '--seconds', '60']
  const { status, stdout, stderr } = spawnSync(process.execPath, command, { encoding: 'utf8' })
  expect(status, stdout + stderr).toBe(0)
})
