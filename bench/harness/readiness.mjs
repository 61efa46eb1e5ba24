/** Waits for a server that was just started, and sends it simple requests. */

import { request } from 'node:http'
import { request as secureRequest } from 'node:https'
import { setTimeout as sleep } from 'node:timers/promises'
import { Connection, get } from '../load/connection.mjs'

const DEADLINE_MS = 15_000
const RETRY_MS = 1

/**
 * Resolves when the server has answered a request with 200.
 * @param {number} port
 * @param {string} path
 * @param {import('./children.mjs').Child} child
 * @param {boolean} [isSecure]
 */
export async function untilAnswering(port, path, child, isSecure = false) {
  const startedAt = performance.now()
  let seen = 'nothing'
  while (performance.now() - startedAt < DEADLINE_MS) {
    if (child.hasExited) throw new Error(`the program ended at once: ${child.errors}`)
    seen = await (isSecure ? askSecurely(port, path) : askOnce(port, path))
    if (seen === '200') return
    await sleep(RETRY_MS)
  }
  throw new Error(`no answer on port ${port} in time, but ${seen}: ${child.errors}`)
}

/**
 * @param {number} port
 * @param {string} path
 */
async function askOnce(port, path) {
  try {
    const connection = await Connection.open(port)
    const status = await connection.send(get(port, path, 'acme'))
    connection.close()
    return String(status)
  } catch (error) {
    return String(error)
  }
}

/**
 * @param {number} port
 * @param {string} path
 * @returns {Promise<string>}
 */
function askSecurely(port, path) {
  return new Promise((resolve) => {
    const options = { port, path, agent: false, rejectUnauthorized: false, headers: { 'x-org-id': 'acme' } }
    const outgoing = secureRequest(options, (response) => {
      response.resume()
      resolve(String(response.statusCode))
    })
    outgoing.on('error', (error) => resolve(String(error)))
    outgoing.end()
  })
}

/**
 * @param {string} url
 * @param {{ method?: string, content?: string }} [options]
 * @returns {Promise<string>} the content of the answer
 */
export function fetchText(url, { method = 'GET', content } = {}) {
  return new Promise((resolve, reject) => {
    const outgoing = request(url, { method, agent: false, timeout: DEADLINE_MS }, async (response) => {
      response.setEncoding('utf8')
      let text = ''
      for await (const chunk of response) text += chunk
      if (response.statusCode === 200) resolve(text)
      else reject(new Error(`${method} ${url} got ${response.statusCode}`))
    })
    outgoing.on('timeout', () => outgoing.destroy(new Error(`${method} ${url} got no answer in time`)))
    outgoing.on('error', reject)
    outgoing.end(content)
  })
}
