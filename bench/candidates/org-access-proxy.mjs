/** This program with its default settings; with others; and other builds of it, or on another Node. */

import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { freePort } from '../harness/ports.mjs'

const MAIN = fileURLToPath(new URL('../../dist/main.js', import.meta.url))

/** The sandbox takes these, the other origins take any. */
export const APP_ID = 'sandbox-app'
export const APP_SECRET = 'sandbox-secret-that-opens-nothing-else'

/** @typedef {{ readonly node: string, readonly main: string }} Build */

/** @type {Build} */
const THIS_BUILD = { node: process.execPath, main: MAIN }

/**
 * The program as the image starts it.
 * @param {readonly string[]} args
 */
export function productProgram(...args) {
  return programOf(THIS_BUILD, args)
}

/**
 * @param {Build} build
 * @param {readonly string[]} args
 * @returns {import('../harness/children.mjs').Program}
 */
function programOf({ node, main }, args) {
  return { command: node, args: ['--max-semi-space-size=8', main, ...args] }
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
 * @param {string} node Path of another `node`.
 * @throws {TypeError}
 */
export function onNode(node) {
  const path = resolve(node)
  if (!existsSync(path)) throw new TypeError(`--node: there is no ${node}`)
  const version = execFileSync(path, ['--version'], { encoding: 'utf8' })
  const [major] = version.slice('v'.length).split('.')
  return variant(`this program on Node ${major}`, { ...THIS_BUILD, node: path })
}

/**
 * @param {string} folder A checkout of another revision, built.
 * @throws {TypeError}
 */
export function atRevision(folder) {
  const main = resolve(folder, 'dist/main.js')
  if (!existsSync(main)) throw new TypeError(`--beside: ${folder} is not built: it has no dist/main.js`)
  return variant(`this program in ${basename(resolve(folder))}`, { ...THIS_BUILD, main })
}

/**
 * @param {string} name
 * @param {Build} build
 * @returns {import('./candidate.mjs').Candidate}
 */
function variant(name, build) {
  return {
    name,
    title: name,
    missing: () => undefined,
    tunnelsWebSockets: true,
    isVariant: true,
    program: (site) => serve(site, {}, build),
  }
}

/**
 * @param {import('./candidate.mjs').Site} site
 * @param {Readonly<Record<string, unknown>>} settings
 * @param {Build} [build]
 */
async function serve({ port, originUrl, caFile, folder, settings: further }, settings, build = THIS_BUILD) {
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
  return programOf(build, ['serve', '--config', configFile])
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
