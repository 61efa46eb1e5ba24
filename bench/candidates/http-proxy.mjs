/** http-proxy 1.18.1, the last release of the well-known package. */

import { nodePeer } from './node-peer.mjs'

export const httpProxy = nodePeer({
  name: 'http-proxy',
  title: 'http-proxy 1.18.1',
  server: 'http-proxy-server.mjs',
  tunnelsWebSockets: true,
})
