/** The `sandbox` command: runs the stand-in service until a signal stops it, and prints commands to try. */

import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { basename, relative } from 'node:path'
import { DEFAULT_APP_ID, type Sandbox, startSandbox } from './sandbox.ts'
import { DEFAULT_APP_SECRET } from './switches.ts'

export interface SandboxCommandOptions {
  /** Port on 127.0.0.1; 9080 if absent, a free one for 0. */
  readonly port?: number | undefined
  /** Reads `OAP_APP_ID`, `OAP_APP_SECRET` and `OAP_APP_SECRET_FILE`, as the proxy does. */
  readonly env: Readonly<Record<string, string | undefined>>
}

const DEFAULT_PORT = 9080

/** Resolves with the exit code, after a signal or a failed start. */
export async function runSandbox({ port = DEFAULT_PORT, env }: SandboxCommandOptions): Promise<number> {
  const signalled = Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')])
  try {
    const [appSecret, shownSecret] = await appSecretFrom(env)
    await using sandbox = await startSandbox({ port, appId: env['OAP_APP_ID'] || DEFAULT_APP_ID, appSecret })
    console.log(introduction(sandbox, shownSecret))
    await signalled
    return 0
  } catch (error) {
    console.error(`org-access-proxy sandbox: ${explain(error)}`)
    return 1
  }
}

/** The secret, and a shell expression for it. Only the public default is shown itself. */
async function appSecretFrom(env: SandboxCommandOptions['env']): Promise<[secret: string, shown: string]> {
  const { OAP_APP_SECRET: value, OAP_APP_SECRET_FILE: path } = env
  if (value) return [value, '$OAP_APP_SECRET']
  if (!path) return [DEFAULT_APP_SECRET, DEFAULT_APP_SECRET]
  const content = await readFile(path, 'utf8')
  return [content.replace(/\r?\n$/, ''), '$(cat $OAP_APP_SECRET_FILE)']
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
