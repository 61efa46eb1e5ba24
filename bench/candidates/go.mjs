/** Go's httputil.ReverseProxy, the proxy of the standard library of a compiled language. */

import { goProgram, missingGo } from '../harness/go-programs.mjs'

/** @type {import('./candidate.mjs').Candidate} */
export const goReverseProxy = {
  name: 'go',
  title: 'Go httputil.ReverseProxy',
  missing: missingGo,
  tunnelsWebSockets: true,
  program: ({ port, originUrl, caFile }) => ({
    command: goProgram('reverse-proxy'),
    args: ['-listen', `127.0.0.1:${port}`, '-origin', originUrl, '-ca', caFile],
    env: { GOMAXPROCS: '1' },
  }),
}
