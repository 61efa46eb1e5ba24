import tests from '../../vitest.config.ts'

const { MUTANT_TESTS = 'test/**/*.test.ts' } = process.env

/** A test that fails by the clock would count as one that noticed a mutant. */
const CLOCK_BOUND = ['test/attacks/tls-verification.test.ts']

export default { ...tests, test: { ...tests.test, include: MUTANT_TESTS.split(','), exclude: CLOCK_BOUND } }
