/**
 * The attack: SIGUSR1 makes Node open its inspector, which shows the whole memory to every user of the machine. The attacker
 * sends the signal while the program starts, before the program handles it.
 */

import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { eventually } from '../../support/changes.ts'
import { request } from '../../support/raw-client.ts'
import { serviceForFile } from '../../support/service-for-file.ts'
import { spawnProxy } from '../../support/spawn-proxy.ts'

const STARTS = 4
const INSPECTOR = /Debugger listening on ws:\/\/127\.0\.0\.1:(\d+)/

const served = serviceForFile()

/** Undefined if the signal came before Node handled it, which ends the process. */
async function signalEarly(delayMs: number): Promise<'closed' | 'never opened' | undefined> {
  // Only sets the port. Otherwise, programs that start at the same time would use the same one.
  await using proxy = spawnProxy({ env: served.env, nodeArgs: ['--inspect-port=0'] })
  await sleep(delayMs)
  proxy.signal('SIGUSR1')
  const ready = await proxy.ready().catch(() => undefined)
  if (ready === undefined) {
    expect(await proxy.exited).toEqual({ code: null, signal: 'SIGUSR1' })
    return undefined
  }
  expect((await request(ready.port, get('/v2/x', 'acme'))).status).toBe(200)
  const [, inspectorPort] = INSPECTOR.exec(proxy.output) ?? []
  if (inspectorPort === undefined) return 'never opened'
  const isClosed = () =>
    request(Number(inspectorPort), 'GET /json/list HTTP/1.1\r\nHost: localhost\r\n\r\n').then(
      () => undefined,
      () => true,
    )
  await eventually(isClosed, 'the inspector closes')
  return 'closed'
}

/** Time until the program is ready, on this machine at this moment. */
async function startMs(): Promise<number> {
  const startedAt = performance.now()
  await using proxy = spawnProxy({ env: served.env })
  await proxy.ready()
  return performance.now() - startedAt
}

test('SIGUSR1 at any moment of the start leaves no inspector open', async () => {
  const latestMs = 1.2 * (await startMs())
  const outcomes: unknown[] = []
  const start = async (first: number) => {
    for (let i = first; i < STARTS; i += 2) outcomes.push(await signalEarly((latestMs * (i + 0.5)) / STARTS))
  }
  await Promise.all([start(0), start(1)])
  // Those that end the process show nothing.
  expect(outcomes.filter((outcome) => outcome !== undefined).length).toBeGreaterThan(0)
})

test('SIGUSR1 later is logged', async () => {
  await using proxy = spawnProxy({ env: served.env, nodeArgs: ['--inspect-port=0'] })
  await proxy.ready()
  proxy.signal('SIGUSR1')
  await proxy.waitForLine(/inspector stays closed/)
  expect(proxy.output).not.toMatch(INSPECTOR)
})
