import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 20_000,
    hookTimeout: 20_000,
  },
  // Node 20 has no `await using` of its own: it is lowered for the tests.
  oxc: { target: 'es2022' },
})
