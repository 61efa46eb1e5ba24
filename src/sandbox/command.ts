/** The `sandbox` subcommand: the stand-in service by itself, with what a person needs to try it, until a signal ends it. */

import { type EventEmitter, once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { DEFAULT_APP_ID, type Sandbox, startSandbox } from './sandbox.ts'
import { DEFAULT_APP_SECRET } from './switches.ts'

export interface SandboxCommandOptions {
  /** Of 127.0.0.1; 9080 if left out, a free one for 0. */
  readonly port?: number | undefined
  /** `OAP_APP_ID`, `OAP_APP_SECRET` and `OAP_APP_SECRET_FILE` count: one environment serves proxy and sandbox. */
  readonly env: Readonly<Record<string, string | undefined>>
  readonly print?: (text: string) => void
  readonly printError?: (text: string) => void
  /** Where SIGINT and SIGTERM come from. */
  readonly signals?: EventEmitter
}

interface AppSecret {
  readonly value: string
  /** What stands for it on a screen and in a shell: the secret itself only where everybody knows it. */
  readonly shown: string
}

const DEFAULT_PORT = 9080
const APP_ID_VARIABLE = 'OAP_APP_ID'

/** Resolves to the exit code, after a signal has ended it or where it could not start. */
export async function runSandbox(options: SandboxCommandOptions): Promise<number> {
  const { port = DEFAULT_PORT, env, print = console.log, printError = console.error, signals = process } = options
  const signalled = Promise.race([once(signals, 'SIGINT'), once(signals, 'SIGTERM')])
  try {
    const appSecret = await appSecretFrom(env)
    const appId = env[APP_ID_VARIABLE] || DEFAULT_APP_ID
    await using sandbox = await startSandbox({ port, appId, appSecret: appSecret.value })
    print(introduction(sandbox, appSecret.shown))
    await signalled
    return 0
  } catch (error) {
    printError(`org-access-proxy sandbox: ${explain(error)}`)
    return 1
  }
}

async function appSecretFrom(env: SandboxCommandOptions['env']): Promise<AppSecret> {
  const { OAP_APP_SECRET: value, OAP_APP_SECRET_FILE: path } = env
  if (value) return { value, shown: '$OAP_APP_SECRET' }
  if (!path) return { value: DEFAULT_APP_SECRET, shown: DEFAULT_APP_SECRET }
  const content = await readFile(path, 'utf8')
  return { value: content.replace(/\r?\n$/, ''), shown: '$(cat $OAP_APP_SECRET_FILE)' }
}

function explain(error: unknown): string {
  if (!(error instanceof Error) || !('code' in error)) throw error
  if ('port' in error && error.code === 'EADDRINUSE') {
    return `port ${error.port} is in use: choose another one with --port, or 0 for any`
  }
  return error.message
}

function introduction({ baseUrl, appId }: Sandbox, secret: string): string {
  return `
  sandbox     ${baseUrl}
  app id      ${appId}
  app secret  ${secret}
  linked      acme, globex, and every org whose id starts with org-

  Get a token:
    curl -X POST -u "${appId}:${secret}" ${baseUrl}/v2/orgs/acme/access

  Let the proxy get it, in another terminal, and ask through the proxy:
    OAP_BASE_URL=${baseUrl} OAP_APP_ID="${appId}" OAP_APP_SECRET="${secret}" npx org-access-proxy
    curl -H "X-Org-Id: acme" http://localhost:8080/v2/example/endpoint

  See what was counted; make tokens short-lived; end those of one org:
    curl ${baseUrl}/sandbox/stats
    curl -X PUT -d '{"tokenLifetimeMs": 5000}' ${baseUrl}/sandbox/switches
    curl -X POST '${baseUrl}/sandbox/revoke?org=acme'
`
}
