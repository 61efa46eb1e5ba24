/** @fastify/reply-from: Fastify's way to forward a request, on undici as this program. */

import { nodePeer } from './node-peer.mjs'

export const replyFrom = nodePeer({
  name: 'reply-from',
  title: '@fastify/reply-from',
  server: 'reply-from-server.mjs',
  tunnelsWebSockets: false,
})
