/** `npm run fuzz -- --runs N --parser-runs P --seconds S --seed X`: damaged messages from all sides, until one breaks a promise. */

import { randomInt } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { startVitest } from 'vitest/node'

const { values } = parseArgs({
  options: {
    runs: { type: 'string', default: '10000' },
    'parser-runs': { type: 'string', default: '1000000' },
    seconds: { type: 'string', default: '3600' },
    seed: { type: 'string', default: String(randomInt(2 ** 31)) },
  },
})

// Run as the tests are, because Node 20 cannot take TypeScript by itself.
process.env.FUZZ_OPTIONS = JSON.stringify(values)
const vitest = await startVitest('test', [], {
  config: fileURLToPath(new URL('vitest.config.ts', import.meta.url)),
  run: true,
})
await vitest.close()
