/** `org-access-proxy sandbox`: the built program as a process. */

import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { startSandbox } from '../../src/sandbox/sandbox.ts'
import { lacks } from '../support/programs.ts'
import { type SpawnedProxy, spawnProxy } from '../support/spawn-proxy.ts'
import { basic } from './client.ts'

const run = promisify(execFile)

function start(env: Record<string, string> = {}, port = 0): SpawnedProxy {
  return spawnProxy({ args: ['sandbox', '--port', `${port}`], env })
}

async function statusOf(running: SpawnedProxy, appId: string, appSecret: string): Promise<number> {
  const baseUrl = /http\S+/.exec(await running.waitForLine(/^ {2}sandbox /))?.[0]
  const headers = { authorization: basic(appId, appSecret) }
  return (await fetch(`${baseUrl}/v2/orgs/acme/access`, { method: 'POST', headers })).status
}

test.skipIf(lacks('curl'))(
  'every curl line works when pasted, in the printed order, and a signal ends it',
  async () => {
    await using running = start()
    await running.waitForLine(/revoke/)
    const lines = running.stdout.map((line) => line.trim())
    const answers: string[] = []
    for (const line of lines.filter((line) => line.startsWith('curl') && !line.includes(':8080'))) {
      answers.push((await run('sh', ['-c', `${line} --silent --show-error`])).stdout)
    }
    expect(answers.map((answer) => JSON.parse(answer))).toMatchObject([
      { orgAccessToken: expect.any(String) },
      { totals: { mints: 1 } },
      { tokenLifetimeMs: 5000 },
      { revoked: 1 },
    ])
    expect(running.output).toMatch(/app id +sandbox-app\n +app secret +sandbox-secret-that-opens-nothing-else\n/)
    running.signal('SIGINT')
    expect(await running.exited).toEqual({ code: 0, signal: null })
  },
)

test('a secret from the environment or from a file is used and not printed', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sandbox-'))
  try {
    const file = join(folder, 'secret')
    await writeFile(file, 'a-secret-to-look-for\n')
    await using fromEnv = start({ OAP_APP_ID: 'my-app', OAP_APP_SECRET: 'a-secret-to-look-for' })
    await using fromFile = start({ OAP_APP_SECRET_FILE: file })
    expect(await statusOf(fromEnv, 'my-app', 'a-secret-to-look-for')).toBe(200)
    expect(await statusOf(fromFile, 'sandbox-app', 'a-secret-to-look-for')).toBe(200)
    expect(fromEnv.output + fromFile.output).not.toContain('a-secret-to-look-for')
    fromEnv.signal('SIGTERM')
    expect(await fromEnv.exited).toEqual({ code: 0, signal: null })
  } finally {
    await rm(folder, { recursive: true })
  }
})

test('a port in use, and a secret file that cannot be read, are one clear line and exit code 1', async () => {
  await using holder = await startSandbox()
  const port = Number(new URL(holder.baseUrl).port)
  await using taken = start({}, port)
  await using unreadable = start({ OAP_APP_SECRET_FILE: '/nowhere/secret' })
  expect([(await taken.exited).code, (await unreadable.exited).code]).toEqual([1, 1])
  expect([...taken.stderr, ...unreadable.stderr]).toEqual([
    `org-access-proxy sandbox: port ${port} is in use: choose another with --port, or any free one with --port 0`,
    expect.stringMatching(/^org-access-proxy sandbox: ENOENT.*\/nowhere\/secret/),
  ])
})
