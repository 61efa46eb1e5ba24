/** The `sandbox` command: runs the stand-in service until a signal stops it, and prints commands to try. */

import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { z } from 'zod'
import { DEFAULT_APP_ID, type Sandbox, startSandbox } from './sandbox.ts'
import { DEFAULT_APP_SECRET, DEFAULT_ENDPOINT, DEFAULT_FIELD, DEFAULT_HEADER } from './switches.ts'

export interface SandboxCommand {
  readonly port?: number | undefined
  /** The output of `probe --json`: the sandbox is to be as that service. */
  readonly like?: string | undefined
}

/** Reads the App id and its secret from the environment, as the proxy does. Resolves with the exit code after a signal. */
export async function runSandbox({ port = 9080, like }: SandboxCommand, env = process.env): Promise<number> {
  const switches = like === undefined ? {} : await switchesIn(like)
  const signalled = Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')])
  const { OAP_APP_SECRET: given, OAP_APP_SECRET_FILE: file } = env
  const appSecret = file ? (await readFile(file, 'utf8')).replace(/\r?\n$/, '') : given || DEFAULT_APP_SECRET
  await using sandbox = await startSandbox({ ...switches, port, appId: env['OAP_APP_ID'] || DEFAULT_APP_ID, appSecret })
  // Only the public secret is shown.
  const hidden = file ? `$(cat ${file})` : '$OAP_APP_SECRET'
  console.log(introduction(sandbox, appSecret === DEFAULT_APP_SECRET ? appSecret : hidden))
  await signalled
  return 0
}

const REPORT = z.object({ sandbox: z.record(z.string(), z.unknown()) })

/** @throws {Error} whose message names the file */
async function switchesIn(path: string): Promise<object> {
  const text = await readFile(path, 'utf8')
  try {
    return REPORT.parse(JSON.parse(text)).sandbox
  } catch {
    throw new Error(`${path} is no output of probe --json`)
  }
}

function introduction(
  { baseUrl, appId, tokenEndpoint, tokenField, tokenHeader, tokenAuth }: Sandbox,
  secret: string,
): string {
  const [method = '', path = ''] = tokenEndpoint.split(' ')
  const version = [
    [tokenEndpoint, DEFAULT_ENDPOINT, 'ENDPOINT'],
    [tokenField, DEFAULT_FIELD, 'FIELD'],
    [tokenHeader, DEFAULT_HEADER, 'HEADER'],
  ]
    .map(([value, byDefault, name]) => (value === byDefault ? '' : ` OAP_TOKENS_${name}="${value}"`))
    .join('')
  const getToken = `  Get a token:
    curl -X ${method} -u "${appId}:${secret}" ${baseUrl}${path.replace('{orgId}', 'acme')}

`
  return `
  sandbox  ${baseUrl}   (its statistics: ${baseUrl}/sandbox/stats)
  linked   acme, globex, and every org whose id starts with org-

${tokenAuth === 'basic' ? getToken : ''}  Start the proxy in another terminal, and send a request through it:
    OAP_BASE_URL=${baseUrl} OAP_APP_ID="${appId}" OAP_APP_SECRET="${secret}"${version} node ${process.argv[1]}
    curl -H "X-Org-Id: acme" http://localhost:8080/v2/example/endpoint
`
}
