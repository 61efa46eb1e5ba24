import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'
import { statusPageAssets } from './rolldown.config.ts'

/** What waits most begins first, so that no worker is left alone with it at the end. Of each kind, the largest files are first. */
class UnitsLast extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isUnit = ({ moduleId }: TestSpecification) => moduleId.includes('/test/units/')
    const sorted = await super.sort(files)
    return [...sorted.filter((file) => !isUnit(file)), ...sorted.filter(isUnit)]
  }
}

export default defineConfig({
  plugins: [statusPageAssets()],
  test: {
    include: ['test/**/*.test.ts'],
    setupFiles: ['test/support/each-file.ts'],
    pool: 'forks',
    maxConcurrency: 12, // tests of one file that are marked as concurrent wait even more
    maxWorkers: 8, // the tests mostly wait: two cores carry eight of them
    isolate: false, // a worker loads the program once, and not for each file
    sequence: { sequencer: UnitsLast },
    // Not a limit on anything but a hang: on a busy machine, the slowest file takes ten times as long as on a quiet one.
    testTimeout: 120_000,
    hookTimeout: 120_000,
  },
  // Node 20 has no `await using` of its own: it is lowered for the tests.
  oxc: { target: 'es2022' },
})
