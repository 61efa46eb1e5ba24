/** http-proxy 1.18.1, the last release of the well-known package; and httpxy, its maintained rewrite. */

import { createRequire } from 'node:module'
import { nodePeer } from './node-peer.mjs'

export const httpProxy = nodePeer({
  name: 'http-proxy',
  title: 'http-proxy 1.18.1',
  server: 'http-proxy-server.mjs',
  tunnelsWebSockets: true,
})

/** The name resolves to it in the project's own package.json. */
const HTTPXY = createRequire(new URL('../../package.json', import.meta.url)).resolve('http-proxy')

export const httpxy = nodePeer({
  name: 'httpxy',
  title: 'httpxy',
  server: 'http-proxy-server.mjs',
  args: [HTTPXY],
  tunnelsWebSockets: true,
})
