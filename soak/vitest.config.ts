import tests from '../vitest.config.ts'

const DAY_MS = 24 * 3_600_000

export default {
  ...tests,
  test: { ...tests.test, include: ['soak/long-run.ts'], testTimeout: DAY_MS, disableConsoleIntercept: true },
}
