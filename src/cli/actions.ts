/** `purge`, `resume`, `reload` and `stop`: what the running proxy is asked to do, and what came of it. */

import type { ReloadReport } from '../admin/status.ts'
import type { ListenAddress } from '../listener/bind.ts'
import { askAdmin, contentOf } from './admin-client.ts'

type Address = ListenAddress | 'off'
type Print = (text: string) => unknown

const toStdout: Print = (text) => process.stdout.write(text)

/** Of every Org if `org` is undefined. */
export async function purge(address: Address, org: string | undefined, print = toStdout): Promise<0> {
  const { purged }: { purged: number } = await post(address, `/tokens/purge?org=${encodeURIComponent(org ?? 'all')}`)
  const of = org === undefined ? '' : ` of ${JSON.stringify(org)}`
  print(purged === 0 ? `there was no token${of}\n` : `dropped ${purged} token${purged === 1 ? '' : 's'}${of}\n`)
  return 0
}

export async function resume(address: Address, print = toStdout): Promise<0> {
  await post(address, '/tokens/resume')
  print('pauses and limits are over: the next request that needs a token asks the token endpoint\n')
  return 0
}

/** Thousands of callers, each with a file, take seconds. */
const RELOAD_MS = 60_000

/** Resolves with the exit code: 78 if the configuration was refused, as at a start. */
export async function reload(
  address: Address,
  print = toStdout,
  printError: Print = (text) => process.stderr.write(text),
): Promise<0 | 78> {
  const { outcome, problems, needRestart }: ReloadReport = await post(address, '/reload', RELOAD_MS)
  if (outcome === 'refused') {
    printError(`configuration refused, and the one before it stays in use:\n${problems.join('\n')}\n`)
    return 78
  }
  print(`configuration ${outcome}\n`)
  if (needRestart.length > 0) print(`these changes need a restart: ${needRestart.join(', ')}\n`)
  return 0
}

/** Waits for the end of the proxy. Resolves with its exit code. */
export async function stop(address: Address, print = toStdout): Promise<0 | 1> {
  const { broken }: { broken: number } = await post(address, '/quitquitquit', Number.POSITIVE_INFINITY)
  const cut = `broke off ${broken} connection${broken === 1 ? '' : 's'} with requests in flight, at shutdown.timeout`
  print(broken === 0 ? 'stopped: all requests in flight finished\n' : `stopped: ${cut}\n`)
  return broken === 0 ? 0 : 1
}

async function post<T>(address: Address, path: string, deadlineMs?: number): Promise<T> {
  return JSON.parse(contentOf(await askAdmin(address, path, 'POST', deadlineMs)))
}
