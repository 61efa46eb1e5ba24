/** The service behind all candidates: an nginx that answers at once, issues tokens, and counts requests. */

import { execFileSync } from 'node:child_process'
import { closeSync, ftruncateSync, mkdirSync, openSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Child, LOAD_CORE } from '../harness/children.mjs'
import { freePort } from '../harness/ports.mjs'
import { fetchText, untilAnswering } from '../harness/readiness.mjs'

/** The content of downloads repeats this. */
const CONTENT_BYTES = [0, 1_024, 65_536, 1_048_576, 10_485_760, 104_857_600]

/** @typedef {{ port: number, securePort: number, tokenServicePort: number, folder: string }} Layout */

/**
 * @typedef {object} Origin
 * @property {string} url
 * @property {string} secureUrl The same with TLS.
 * @property {string} countedUrl The same, its tokens from the token service.
 * @property {number} tokenServicePort Where the token service is to listen.
 * @property {string} caFile The certificate to trust for TLS.
 * @property {() => Promise<number>} requests How many it has had so far.
 */

/**
 * @param {string} parentFolder
 * @returns {Promise<Origin>}
 */
export async function startNginxOrigin(parentFolder) {
  const folder = join(parentFolder, 'origin')
  mkdirSync(join(folder, 'content', 'v2', 'content'), { recursive: true })
  for (const bytes of CONTENT_BYTES) writeZeros(join(folder, 'content', 'v2', 'content', String(bytes)), bytes)
  makeCertificate(folder)
  const [port, securePort, tokenServicePort] = [await freePort(), await freePort(), await freePort()]
  const file = join(folder, 'nginx.conf')
  writeFileSync(file, configuration({ port, securePort, tokenServicePort, folder }))
  const child = new Child({ command: 'nginx', args: ['-c', file] }, { core: LOAD_CORE, folder, name: 'origin' })
  await untilAnswering(port, '/v2/small', child)
  const url = `http://127.0.0.1:${port}`
  return {
    url,
    secureUrl: `https://127.0.0.1:${securePort}`,
    countedUrl: `${url}/counted`,
    tokenServicePort,
    caFile: join(folder, 'certificate.pem'),
    requests: async () => countIn(await fetchText(`${url}/status`)),
  }
}

/**
 * The third number of the line below "server accepts handled requests".
 * @param {string} status
 */
function countIn(status) {
  const [, requests] = /^ \d+ \d+ (\d+) $/m.exec(status) ?? []
  if (requests === undefined) throw new Error(`nginx told no count of its requests: ${status}`)
  return Number(requests)
}

/**
 * @param {string} path
 * @param {number} bytes
 */
function writeZeros(path, bytes) {
  const file = openSync(path, 'w')
  ftruncateSync(file, bytes)
  closeSync(file)
}

/** @param {string} folder For `certificate.pem` and `key.pem`. */
export function makeCertificate(folder) {
  const subject = ['-subj', '/CN=bench origin', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1']
  const kind = ['-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2']
  const files = ['-keyout', join(folder, 'key.pem'), '-out', join(folder, 'certificate.pem')]
  execFileSync('openssl', ['req', ...kind, ...subject, ...files], { stdio: 'ignore' })
}

/**
 * `mirror` makes nginx read an upload completely before it answers. `return` alone would not wait.
 * @param {Layout} layout
 */
function configuration({ port, securePort, tokenServicePort, folder }) {
  return `daemon off;
master_process off;
pid ${folder}/nginx.pid;
error_log ${folder}/error.log;
worker_rlimit_nofile 20000;
events { worker_connections 15000; }
http {
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000000;
  keepalive_timeout 1h;
  client_header_buffer_size 16k;
  client_max_body_size 0;
  client_body_buffer_size 101m;
  client_body_temp_path ${folder}/uploads;
  proxy_temp_path ${folder}/proxied;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
  ssl_certificate ${folder}/certificate.pem;
  ssl_certificate_key ${folder}/key.pem;
  default_type application/json;
  upstream token_service { server 127.0.0.1:${tokenServicePort}; keepalive 64; }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    listen 127.0.0.1:${securePort} ssl;
    root ${folder}/content;
    location = /v2/small { return 200 '{"id":"0f8fad5b-d9cb-469f-a165-70867728950e","name":"a small answer"}'; }
    location = /v2/upload { mirror /discarded; error_page 405 =200 @uploaded; empty_gif; }
    location @uploaded { return 200 '{}'; }
    location = /discarded { internal; return 204; }
    location ~ ^/v2/orgs/([^/]+)/access$ { return 200 '{"orgAccessToken":"a-token-of-usual-length-for-$1"}'; }
    location ~ ^/counted(/v2/orgs/[^/]+/access)$ {
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_pass http://token_service$1;
    }
    location /counted/v2/ { rewrite ^/counted(.*)$ $1 last; }
    location = /status { stub_status; }
  }
}
`
}
