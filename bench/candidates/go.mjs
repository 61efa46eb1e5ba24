/** Go's httputil.ReverseProxy: what a compiled language reaches with its standard library. */

import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { isInstalled } from '../harness/children.mjs'

const SOURCE = fileURLToPath(new URL('../go/', import.meta.url))
const BINARY = fileURLToPath(new URL('../bin/reverse-proxy', import.meta.url))

let isBuilt = false

/** @type {import('./candidate.mjs').Candidate} */
export const goReverseProxy = {
  name: 'go',
  title: 'Go httputil.ReverseProxy',
  missing: () => (isInstalled('go') ? undefined : 'go is not installed'),
  tunnelsWebSockets: true,
  program: ({ port, originUrl, caFile }) => {
    build()
    return {
      command: BINARY,
      args: ['-listen', `127.0.0.1:${port}`, '-origin', originUrl, '-ca', caFile],
      env: { GOMAXPROCS: '1' },
    }
  },
}

function build() {
  if (isBuilt) return
  execFileSync('go', ['build', '-o', BINARY, '.'], { cwd: SOURCE, stdio: ['ignore', 'ignore', 'inherit'] })
  isBuilt = true
}
