/** The `sandbox` command: runs the stand-in service until a signal stops it, and prints commands to try. */

import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { DEFAULT_APP_ID, type Sandbox, startSandbox } from './sandbox.ts'
import { DEFAULT_APP_SECRET } from './switches.ts'

/** Reads the App id and its secret from the environment, as the proxy does. Resolves with the exit code after a signal. */
export async function runSandbox(port = 9080, env = process.env): Promise<number> {
  const signalled = Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')])
  const { OAP_APP_SECRET: given, OAP_APP_SECRET_FILE: file } = env
  const appSecret = file ? readFileSync(file, 'utf8').replace(/\r?\n$/, '') : given || DEFAULT_APP_SECRET
  await using sandbox = await startSandbox({ port, appId: env['OAP_APP_ID'] || DEFAULT_APP_ID, appSecret })
  // Only the public secret is shown.
  const hidden = file ? `$(cat ${file})` : '$OAP_APP_SECRET'
  console.log(introduction(sandbox, appSecret === DEFAULT_APP_SECRET ? appSecret : hidden))
  await signalled
  return 0
}

function introduction({ baseUrl, appId }: Sandbox, secret: string): string {
  return `
  sandbox  ${baseUrl}   (its statistics: ${baseUrl}/sandbox/stats)
  linked   acme, globex, and every org whose id starts with org-

  Get a token:
    curl -X POST -u "${appId}:${secret}" ${baseUrl}/v2/orgs/acme/access

  Start the proxy in another terminal, and send a request through it:
    OAP_BASE_URL=${baseUrl} OAP_APP_ID="${appId}" OAP_APP_SECRET="${secret}" node ${process.argv[1]}
    curl -H "X-Org-Id: acme" http://localhost:8080/v2/example/endpoint
`
}
