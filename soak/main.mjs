/** `npm run soak -- --requests N --seconds S --seed X`: whose token, whose answer, for as long as one likes. */

import { randomInt } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { startVitest } from 'vitest/node'

const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '1000000' },
    seconds: { type: 'string', default: '3600' },
    seed: { type: 'string', default: String(randomInt(2 ** 31)) },
  },
})

// Run as the tests are, because Node 20 cannot take TypeScript by itself.
process.env.SOAK_OPTIONS = JSON.stringify(values)
const vitest = await startVitest('test', [], {
  config: fileURLToPath(new URL('vitest.config.ts', import.meta.url)),
  run: true,
})
await vitest.close()
