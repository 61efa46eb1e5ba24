/** This program with its default settings; and the same without its request log. */

import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { freePort } from '../harness/ports.mjs'

const MAIN = fileURLToPath(new URL('../../dist/main.js', import.meta.url))

/** The sandbox takes these, the other origins take any. */
const APP_ID = 'sandbox-app'
const APP_SECRET = 'sandbox-secret-that-opens-nothing-else'

/**
 * The program as the image starts it.
 * @param {readonly string[]} args
 * @returns {import('../harness/children.mjs').Program}
 */
export function productProgram(...args) {
  return { command: process.execPath, args: ['--max-semi-space-size=8', MAIN, ...args] }
}

/** @type {import('./candidate.mjs').Candidate} */
export const orgAccessProxy = {
  name: 'org-access-proxy',
  title: 'this program',
  missing: () => undefined,
  tunnelsWebSockets: true,
  program: (site) => serve(site, {}),
}

/** @type {import('./candidate.mjs').Candidate} */
export const orgAccessProxyUnlogged = {
  name: 'org-access-proxy-unlogged',
  title: 'this program, request log off',
  missing: () => undefined,
  tunnelsWebSockets: true,
  program: (site) => serve(site, { log: { requests: 'off' } }),
}

/**
 * With the certificate of the origin.
 * @type {import('./candidate.mjs').Candidate}
 */
export const orgAccessProxyTls = {
  name: 'org-access-proxy-tls',
  title: 'this program, TLS for its clients',
  missing: () => undefined,
  tunnelsWebSockets: true,
  isSecure: true,
  program: (site) =>
    serve(site, { listen: { tls: { certFile: site.caFile, keyFile: join(dirname(site.caFile), 'key.pem') } } }),
}

/**
 * The assumed lifetime of tokens is so short that each measurement includes several renewals.
 * @type {import('./candidate.mjs').Candidate}
 */
export const orgAccessProxyRefreshing = {
  name: 'org-access-proxy-refreshing',
  title: 'this program, a new token every 2 s',
  missing: () => undefined,
  tunnelsWebSockets: true,
  program: (site) => serve(site, { tokens: { lifetime: '2s' } }),
}

/**
 * @param {import('./candidate.mjs').Site} site
 * @param {Readonly<Record<string, unknown>>} settings
 */
async function serve({ port, originUrl, caFile, folder, settings: further }, settings) {
  const secretFolder = join(folder, 'secrets')
  mkdirSync(secretFolder, { recursive: true })
  const secretFile = join(secretFolder, 'secret')
  writeFileSync(secretFile, APP_SECRET, { mode: 0o600 })
  const base = {
    // A sidecar of a minter has no App.
    ...(!('minter' in (further ?? {})) && { appId: APP_ID, appSecretFile: secretFile }),
    baseUrl: originUrl,
    listen: { address: `127.0.0.1:${port}` },
    admin: { address: `127.0.0.1:${await freePort()}` },
    ...(originUrl.startsWith('https:') && { origin: { caFile } }),
  }
  const configFile = join(folder, 'config.yaml') // JSON is YAML
  writeFileSync(configFile, JSON.stringify([settings, further].reduce(merge, base)))
  return productProgram('serve', '--config', configFile)
}

/**
 * Sections are merged, not replaced.
 * @param {Readonly<Record<string, any>>} into
 * @param {Readonly<Record<string, any>>} from
 * @returns {Readonly<Record<string, unknown>>}
 */
function merge(into, from) {
  const merged = { ...into }
  for (const [key, value] of Object.entries(from)) {
    merged[key] = typeof value === 'object' && !Array.isArray(value) ? { ...merged[key], ...value } : value
  }
  return merged
}
