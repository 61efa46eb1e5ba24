/** @fastify/reply-from, Fastify's plugin to forward a request. It uses undici. */

import { nodePeer } from './node-peer.mjs'

export const replyFrom = nodePeer({
  name: 'reply-from',
  title: '@fastify/reply-from',
  server: 'reply-from-server.mjs',
  tunnelsWebSockets: false,
})
