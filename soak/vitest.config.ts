import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: { include: ['soak/long-run.ts'], pool: 'forks', testTimeout: 24 * 3_600_000, disableConsoleIntercept: true },
  oxc: { target: 'es2022' },
})
