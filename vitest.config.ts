import { defineConfig } from 'vitest/config'
import { statusPageAssets } from './rolldown.config.ts'

export default defineConfig({
  plugins: [statusPageAssets()],
  test: {
    include: ['test/**/*.test.ts'],
    setupFiles: ['test/support/each-file.ts'],
    pool: 'forks',
    maxConcurrency: 12, // tests of one file that are marked as concurrent wait even more
    maxWorkers: 6, // the tests mostly wait: two cores carry six of them
    isolate: false, // a worker loads the program once, and not for each file
    // Not a limit on anything but a hang: on a busy machine, the slowest file takes ten times as long as on a quiet one.
    testTimeout: 120_000,
    hookTimeout: 120_000,
  },
  // Node 20 has no `await using` of its own: it is lowered for the tests.
  oxc: { target: 'es2022' },
})
