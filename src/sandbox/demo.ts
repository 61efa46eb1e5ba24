/**
 * `npm start`: proxy and sandbox in one process. The proxy is configured exactly as by
 * `org-access-proxy serve --config config/sandbox.yaml`. Only this file imports both.
 */

import '../early-signals.ts'
import { chmod } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import type { Running } from '../app/serve.ts'
import type { Sandbox } from './sandbox.ts'

// After the check of Node's version: a static import of them fails first on an old version.
const { serve } = await import('../app/serve.ts')
const { explainStartupFailure } = await import('../cli/startup-failure.ts')
const { loadConfig } = await import('../config/load.ts')
const { startSandbox } = await import('./sandbox.ts')

const CONFIG_FILE = fileURLToPath(new URL('../../config/sandbox.yaml', import.meta.url))
const FREE_PORTS = 'OAP_LISTEN_ADDRESS=localhost:0 OAP_ADMIN_ADDRESS=localhost:0 OAP_BASE_URL=http://127.0.0.1:0'

/** Resolves with the exit code. */
async function runDemo(): Promise<number> {
  // Git keeps no file modes, and the proxy warns about a readable secret. This one is public.
  await chmod(new URL('../../config/sandbox.secret', import.meta.url), 0o600).catch(() => undefined)
  const { config } = await loadConfig({ file: CONFIG_FILE, env: process.env })
  const { baseUrl, app } = config
  if (baseUrl.hostname !== '127.0.0.1' && baseUrl.hostname !== 'localhost') {
    throw new Error('npm start runs its own service: unset OAP_BASE_URL, or set it to http://127.0.0.1:PORT')
  }
  const port = Number(baseUrl.port || 80)
  await using sandbox = await startSandbox({
    port,
    ...(app && { appId: app.appId, appSecret: app.appSecret.reveal() }),
  })
  // With port 0 the sandbox has picked a port. People read this log, unless the environment says otherwise.
  const env = { OAP_LOG_FORMAT: 'pretty', ...process.env, OAP_BASE_URL: sandbox.baseUrl + baseUrl.pathname }
  const proxy = await serve({ file: CONFIG_FILE, env })
  process.stdout.on('error', () => undefined) // a reader that goes does not end the demo
  console.log(introduction(proxy, sandbox))
  return await proxy.stopped
}

function introduction({ address, adminAddress }: Running, { baseUrl }: Sandbox): string {
  const callLine = (org: string): string => `curl -i -H 'X-Org-Id: ${org}' ${curlTarget(address)}/v2/example/endpoint`
  return `
  proxy    ${curlTarget(address)}
  sandbox  ${baseUrl}   (its statistics: ${baseUrl}/sandbox/stats)
${adminAddress === undefined ? '' : `  status   ${curlTarget(adminAddress)}\n`}
  The proxy gets the org's token, and the sandbox shows the request that arrived.
    ${callLine('acme')}

  Another org gets a token of its own. One that is not linked, such as initech, gets 403.
    ${callLine('globex')}

  Ctrl-C stops both.
`
}

function curlTarget(address: string): string {
  return address.startsWith('unix:') ? `--unix-socket '${address.slice(5)}' http://localhost` : `http://${address}`
}

function fail(error: unknown): number {
  const { text, exitCode } = explainStartupFailure(error)
  process.stderr.write(text)
  if (text.includes('EADDRINUSE')) console.error(`With free ports: ${FREE_PORTS} npm start`)
  return exitCode
}

process.exit(await runDemo().catch(fail))
