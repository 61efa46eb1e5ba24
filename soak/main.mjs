/** `npm run soak -- --minutes N --idle N --seed X`: see README.md. */

import { randomInt } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { startVitest } from 'vitest/node'

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '12' },
    idle: { type: 'string', default: '3' },
    seed: { type: 'string', default: String(randomInt(2 ** 31)) },
  },
})

// vitest runs it, because Node 20 cannot run TypeScript by itself.
process.env.SOAK_OPTIONS = JSON.stringify(values)
const vitest = await startVitest('test', [], {
  config: fileURLToPath(new URL('vitest.config.ts', import.meta.url)),
  run: true,
})
await vitest.close()
