/** The floor: programs of Node that join sockets and do nothing else, without this program's parsers and with them. */

import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { rolldown } from 'rolldown'

const SERVER = fileURLToPath(new URL('splice-server.mjs', import.meta.url))
const SOURCE = fileURLToPath(new URL('../../src/http1/', import.meta.url))

/** @type {import('./candidate.mjs').Candidate} */
export const splice = {
  name: 'splice',
  title: 'floor: sockets joined',
  missing: () => undefined,
  tunnelsWebSockets: false,
  program: ({ port, originUrl, caFile }) => programOf([String(port), originUrl, caFile]),
}

/** @type {import('./candidate.mjs').Candidate} */
export const spliceParsed = {
  name: 'splice-parsed',
  title: 'floor: the same, parsed',
  missing: () => undefined,
  tunnelsWebSockets: false,
  program: async ({ port, originUrl, caFile, folder }) => {
    return programOf([String(port), originUrl, caFile, await bundleParsers(folder)])
  },
}

/**
 * @param {readonly string[]} args
 * @returns {import('../harness/children.mjs').Program}
 */
function programOf(args) {
  return { command: process.execPath, args: ['--max-semi-space-size=8', SERVER, ...args] }
}

/** Node 20 reads no TypeScript. @param {string} folder */
async function bundleParsers(folder) {
  const id = 'parsers'
  const bundle = await rolldown({
    input: id,
    platform: 'node',
    plugins: [
      {
        name: id,
        resolveId: (source) => (source === id ? `\0${id}` : undefined),
        load: (resolved) => (resolved === `\0${id}` ? EXPORTS : undefined),
      },
    ],
  })
  const file = join(folder, 'parsers.mjs')
  await bundle.write({ file })
  await bundle.close()
  return file
}

const EXPORTS = ['request-parser.ts', 'response-parser.ts']
  .map((file) => `export * from ${JSON.stringify(join(SOURCE, file))}`)
  .join('\n')
