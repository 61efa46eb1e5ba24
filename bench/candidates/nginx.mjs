/** nginx as a gateway with its access log on, a well-known gateway in C. */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { isInstalled } from '../harness/children.mjs'

/** @type {import('./candidate.mjs').Candidate} */
export const nginx = {
  name: 'nginx',
  title: 'nginx, access log on',
  missing: () => (isInstalled('nginx') ? undefined : 'nginx is not installed'),
  tunnelsWebSockets: true,
  program: (site) => {
    const file = join(site.folder, 'nginx.conf')
    writeFileSync(file, configuration(site))
    return { command: 'nginx', args: ['-c', file] }
  },
}

/** @param {import('./candidate.mjs').Site} site */
function configuration({ port, originUrl, caFile, folder }) {
  const { host, protocol } = new URL(originUrl)
  return `daemon off;
master_process off;
pid ${folder}/nginx.pid;
error_log ${folder}/error.log;
worker_rlimit_nofile 20000;
events { worker_connections 20000; }
http {
  access_log ${folder}/access.log combined;
  keepalive_requests 1000000000;
  keepalive_timeout 1h;
  client_max_body_size 0;
  client_body_temp_path ${folder}/uploads;
  proxy_temp_path ${folder}/proxied;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
  upstream origin { server ${host}; keepalive 256; keepalive_requests 1000000000; keepalive_timeout 1h; }
  map $http_upgrade $hop { default upgrade; "" ""; }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    location / {
      proxy_pass ${protocol}//origin;
      proxy_http_version 1.1;
      proxy_set_header Host ${host};
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $hop;
      proxy_set_header Authorization "Bearer a-token-of-usual-length";
      proxy_set_header X-Org-Id "";
      proxy_request_buffering off;
      proxy_max_temp_file_size 0;
      proxy_ssl_verify on;
      proxy_ssl_trusted_certificate ${caFile};
      proxy_ssl_name localhost;
    }
  }
}
`
}
