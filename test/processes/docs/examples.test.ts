/** The examples, run as their README says, with the real proxy and the sandbox. */

import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Sandbox, startSandbox } from '../../../src/sandbox/sandbox.ts'
import { startProxy } from '../../../src/sandbox/testing.ts'
import { lacks } from '../../support/programs.ts'

const EXAMPLES = fileURLToPath(new URL('../../../examples/', import.meta.url))
/** `go run` compiles before it runs. */
const CALL_DEADLINE_MS = 120_000
const run = promisify(execFile)

let sandbox: Sandbox
let proxy: Awaited<ReturnType<typeof startProxy>>

beforeAll(async () => {
  sandbox = await startSandbox()
  proxy = await startProxy(sandbox)
})

afterAll(async () => {
  await proxy.close()
  await sandbox.close()
})

async function call([program = '', ...args]: readonly string[], org: string) {
  const env = { ...process.env, PROXY_URL: proxy.url }
  const outputOf = ({ stdout, stderr }: { stdout: string; stderr: string }) => stdout + stderr
  return await run(program, [...args, org], { cwd: EXAMPLES, env }).then(
    (done) => ({ code: 0, output: outputOf(done) }),
    (error) => ({ code: error.code, output: outputOf(error) }),
  )
}

describe.each([
  { command: ['sh', 'call.sh'], needs: ['curl'] },
  { command: [process.execPath, 'call.js'], needs: [] },
  { command: ['python3', 'call.py'], needs: ['python3'] },
  { command: ['go', 'run', 'call.go'], needs: ['go'] },
] as const)('$command', ({ command, needs }) => {
  test.skipIf(lacks(...needs))(
    'prints the answer for a linked org, and the reason for another',
    async () => {
      const linked = await call(command, 'acme')
      expect(linked).toEqual({ code: 0, output: expect.stringMatching(/['"]?org['"]?: ['"]acme['"]/) })
      const unlinked = await call(command, 'initech')
      expect(unlinked.code).not.toBe(0)
      expect(unlinked.output).toContain('org_access_refused')
    },
    CALL_DEADLINE_MS,
  )
})

test('the tests of the example service pass', async () => {
  const { NODE_TEST_CONTEXT: _, ...env } = process.env
  const { stdout } = await run(process.execPath, ['--test', '--test-reporter=tap', 'own-service/service.test.js'], {
    cwd: EXAMPLES,
    env,
  })
  expect(stdout).toMatch(/^# pass 6$/m)
  expect(stdout).toMatch(/^# fail 0$/m)
})
