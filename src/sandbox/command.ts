/** The `sandbox` command: runs the stand-in service until a signal stops it, and prints commands to try. */

import { type EventEmitter, once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { basename, relative } from 'node:path'
import { DEFAULT_APP_ID, type Sandbox, startSandbox } from './sandbox.ts'
import { DEFAULT_APP_SECRET } from './switches.ts'

export interface SandboxCommandOptions {
  /** Port on 127.0.0.1; 9080 if absent, a free one for 0. */
  readonly port?: number | undefined
  /** Reads `OAP_APP_ID`, `OAP_APP_SECRET` and `OAP_APP_SECRET_FILE`, as the proxy does. */
  readonly env: Readonly<Record<string, string | undefined>>
  readonly print?: (text: string) => void
  readonly printError?: (text: string) => void
  /** Emits SIGINT and SIGTERM. */
  readonly signals?: EventEmitter
}

interface AppSecret {
  readonly value: string
  /** A shell expression for it. Only the public default is shown itself. */
  readonly shown: string
}

const DEFAULT_PORT = 9080
const APP_ID_VARIABLE = 'OAP_APP_ID'

/** Resolves with the exit code, after a signal or a failed start. */
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
    return `port ${error.port} is in use: choose another with --port, or any free one with --port 0`
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

  Start the proxy in another terminal, and send a request through it:
    OAP_BASE_URL=${baseUrl} OAP_APP_ID="${appId}" OAP_APP_SECRET="${secret}" ${programName()}
    curl -H "X-Org-Id: acme" http://localhost:8080/v2/example/endpoint

  Show the statistics; shorten the lifetime of tokens; revoke the tokens of one org:
    curl ${baseUrl}/sandbox/stats
    curl -X PUT -d '{"tokenLifetimeMs": 5000}' ${baseUrl}/sandbox/switches
    curl -X POST '${baseUrl}/sandbox/revoke?org=acme'
`
}

/** The program as a person types it here: the installed command, or `node dist/main.js` in a clone. */
function programName(): string {
  const script = process.argv[1] ?? ''
  return basename(script) === 'main.js' ? `node ${relative(process.cwd(), script)}` : 'org-access-proxy'
}
