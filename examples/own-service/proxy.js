/** Starts the proxy before a sandbox, on a free port, and waits until it is ready. */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const MAIN = fileURLToPath(new URL('dist/main.js', import.meta.resolve('org-access-proxy/package.json')))

export async function startProxy({ baseUrl, appId, appSecret }) {
  const child = spawn(process.execPath, [MAIN], {
    env: {
      OAP_BASE_URL: baseUrl,
      OAP_APP_ID: appId,
      OAP_APP_SECRET: appSecret,
      OAP_LISTEN_ADDRESS: '127.0.0.1:0',
      OAP_ADMIN_ADDRESS: 'off',
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const url = await addressOf(child)
  child.stdout.resume()
  return {
    url,
    async close() {
      child.kill()
      await once(child, 'exit')
    },
  }
}

async function addressOf(child) {
  for await (const line of createInterface({ input: child.stdout })) {
    const { msg, address } = JSON.parse(line)
    if (msg === 'ready') return `http://${address}`
  }
  throw new Error('the proxy did not start')
}
