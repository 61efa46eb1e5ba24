import { execFile } from 'node:child_process'
import { EventEmitter } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { runSandbox, type SandboxCommandOptions } from '../../src/sandbox/command.ts'
import { startSandbox } from '../../src/sandbox/sandbox.ts'
import { basic } from './client.ts'

const run = promisify(execFile)

interface Running extends AsyncDisposable {
  readonly printed: string
  readonly baseUrl: string
  readonly exitCode: Promise<number>
}

/** Resolves when the command has printed its address. */
async function start(options: Partial<SandboxCommandOptions> = {}): Promise<Running> {
  const signals = new EventEmitter()
  const { promise, resolve } = withResolvers<string>()
  const exitCode = runSandbox({ port: 0, env: {}, print: resolve, signals, ...options })
  const printed = await promise
  const baseUrl = /http:\/\/127\.0\.0\.1:\d+/.exec(printed)?.[0] ?? ''
  return {
    printed,
    baseUrl,
    exitCode,
    [Symbol.asyncDispose]: async () => {
      signals.emit('SIGTERM')
      await exitCode
    },
  }
}

function withResolvers<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => {}
  const promise = new Promise<T>((settle) => {
    resolve = settle
  })
  return { promise, resolve }
}

async function statusOf(running: Running, appId: string, appSecret: string): Promise<number> {
  const headers = { authorization: basic(appId, appSecret) }
  return (await fetch(`${running.baseUrl}/v2/orgs/acme/access`, { method: 'POST', headers })).status
}

test('every curl line works when pasted, in the printed order', async () => {
  await using running = await start()
  const lines = running.printed
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line.startsWith('curl') && !line.includes(':8080'))
  const answers: string[] = []
  for (const line of lines) answers.push((await run('sh', ['-c', `${line} --silent --show-error`])).stdout)
  expect(answers.map((answer) => JSON.parse(answer))).toMatchObject([
    { orgAccessToken: expect.any(String) },
    { totals: { mints: 1 } },
    { tokenLifetimeMs: 5000 },
    { revoked: 1 },
  ])
})

test.each(['SIGINT', 'SIGTERM'])('%s ends it with exit code 0 and frees the port', async (signal) => {
  const signals = new EventEmitter()
  const running = await start({ signals })
  signals.emit(signal)
  expect(await running.exitCode).toBe(0)
  await expect(fetch(running.baseUrl)).rejects.toThrow()
})

test('without variables it accepts the credentials that it prints', async () => {
  await using running = await start()
  expect(running.printed).toMatch(/app id +sandbox-app\n +app secret +sandbox-secret-that-opens-nothing-else\n/)
  expect(await statusOf(running, 'sandbox-app', 'sandbox-secret-that-opens-nothing-else')).toBe(200)
})

test('a secret from the environment is used and not printed', async () => {
  await using running = await start({ env: { OAP_APP_ID: 'my-app', OAP_APP_SECRET: 'a-secret-to-look-for' } })
  expect(await statusOf(running, 'my-app', 'a-secret-to-look-for')).toBe(200)
  expect(running.printed).toContain('my-app')
  expect(running.printed).not.toContain('a-secret-to-look-for')
})

test('a secret from a file loses one newline and is not printed', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sandbox-'))
  try {
    const path = join(folder, 'secret')
    await writeFile(path, 'a-secret-to-look-for\n')
    await using running = await start({ env: { OAP_APP_SECRET_FILE: path } })
    expect(await statusOf(running, 'sandbox-app', 'a-secret-to-look-for')).toBe(200)
    expect(running.printed).not.toContain('a-secret-to-look-for')
  } finally {
    await rm(folder, { recursive: true })
  }
})

test('a port in use is one clear line and exit code 1', async () => {
  await using holder = await startSandbox()
  const port = Number(new URL(holder.baseUrl).port)
  const errors: string[] = []
  const exitCode = await runSandbox({
    port,
    env: {},
    signals: new EventEmitter(),
    printError: (text) => errors.push(text),
  })
  expect(exitCode).toBe(1)
  expect(errors).toEqual([
    `org-access-proxy sandbox: port ${port} is in use: choose another with --port, or any free one with --port 0`,
  ])
})

test('a secret file that cannot be read is one line and exit code 1', async () => {
  const errors: string[] = []
  const env = { OAP_APP_SECRET_FILE: '/nowhere/secret' }
  expect(await runSandbox({ port: 0, env, signals: new EventEmitter(), printError: (text) => errors.push(text) })).toBe(
    1,
  )
  expect(errors).toEqual([expect.stringMatching(/^org-access-proxy sandbox: ENOENT.*\/nowhere\/secret/)])
})
