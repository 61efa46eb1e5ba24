/** HAProxy with its log on, a well-known gateway in C. */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { isInstalled } from '../harness/children.mjs'

/** @type {import('./candidate.mjs').Candidate} */
export const haproxy = {
  name: 'haproxy',
  title: 'HAProxy, log on',
  missing: () => (isInstalled('haproxy') ? undefined : 'haproxy is not installed'),
  tunnelsWebSockets: true,
  program: (site) => {
    const file = join(site.folder, 'haproxy.cfg')
    writeFileSync(file, configuration(site))
    return { command: 'haproxy', args: ['-db', '-f', file] }
  },
}

/** @param {import('./candidate.mjs').Site} site */
function configuration({ port, originUrl, caFile }) {
  const { host, protocol } = new URL(originUrl)
  const tls = protocol === 'https:' ? `ssl verify required ca-file ${caFile} verifyhost localhost` : ''
  return `global
  nbthread 1
  no strict-limits
  maxconn 11000
  log stdout format raw local0
defaults
  mode http
  log global
  option httplog
  http-reuse always
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  timeout tunnel 1h
frontend apps
  bind 127.0.0.1:${port} backlog 4096
  http-request set-header Authorization "Bearer a-token-of-usual-length"
  http-request set-header Host ${host}
  http-request del-header X-Org-Id
  default_backend service
backend service
  server origin ${host} maxconn 256 ${tls}
`
}
