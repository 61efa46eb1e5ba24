import { defineConfig } from 'vitest/config'
import { statusPageAssets } from './rolldown.config.ts'

export default defineConfig({
  plugins: [statusPageAssets()],
  test: {
    include: ['test/**/*.test.ts'],
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
  // Node 20 has no `await using` of its own: it is lowered for the tests.
  oxc: { target: 'es2022' },
})
