/** A peer written as a script in this folder. The same Node runs it and this program. */

import { fileURLToPath } from 'node:url'

/**
 * @param {{ name: string, title: string, server: string, args?: readonly string[], tunnelsWebSockets: boolean }} peer
 * @returns {import('./candidate.mjs').Candidate}
 */
export function nodePeer({ name, title, server, args = [], tunnelsWebSockets }) {
  const script = fileURLToPath(new URL(server, import.meta.url))
  return {
    name,
    title,
    missing: () => undefined,
    tunnelsWebSockets,
    program: ({ port, originUrl, caFile }) => ({
      command: process.execPath,
      args: [script, String(port), originUrl, caFile, ...args],
      env: { NODE_ENV: 'production' },
    }),
  }
}
