/**
 * Preloaded into the proxy: looks up the name `RESOLVER_NAME` as the file `RESOLVER_FILE` says (`answer`, `failure` or
 * `silence`). The resolver of the machine stays as it is.
 */

import dns from 'node:dns'
import { readFileSync } from 'node:fs'

const { RESOLVER_FILE: file = '', RESOLVER_NAME: name = '' } = process.env
const { lookup } = dns

/** @type {any} */
const lookUp = (/** @type {string} */ host, /** @type {any} */ options, /** @type {any} */ done) => {
  if (host !== name) return lookup(host, options, done)
  const state = readFileSync(file, 'utf8')
  if (state === 'answer') return lookup('127.0.0.1', options, done)
  if (state === 'failure') return process.nextTick(done, Object.assign(new Error('no answer'), { code: 'EAI_AGAIN' }))
  // A resolver gives up at last.
  setTimeout(() => lookUp(host, options, done), 500).unref()
}
dns.lookup = lookUp
