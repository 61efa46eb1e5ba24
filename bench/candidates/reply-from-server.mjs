/**
 * @fastify/reply-from in front of an origin. It streams contents.
 *
 * node reply-from-server.mjs PORT ORIGIN_URL CA_FILE
 */

import { readFileSync } from 'node:fs'
import replyFrom from '@fastify/reply-from'
import Fastify from 'fastify'

const [port, originUrl = '', caFile = ''] = process.argv.slice(2)

const server = Fastify({ logger: false, bodyLimit: Number.MAX_SAFE_INTEGER })
server.removeAllContentTypeParsers()
server.addContentTypeParser('*', (_request, payload, done) => done(null, payload))
server.register(replyFrom, {
  base: originUrl,
  disableRequestLogging: true,
  undici: { connections: 256, pipelining: 1, connect: { ca: readFileSync(caFile) } },
})
server.all('/*', (request, reply) =>
  reply.from(request.raw.url, {
    rewriteRequestHeaders: (_request, { 'x-org-id': _org, ...headers }) => ({
      ...headers,
      authorization: 'Bearer a-token-of-usual-length',
    }),
  }),
)
await server.listen({ port: Number(port), host: '127.0.0.1', backlog: 4_096 })
