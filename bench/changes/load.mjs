/**
 * An open loop: each request leaves at its time, whatever became of the others. It goes to where the target says at that
 * moment. One request in four is a POST, and two a second are the first of their Org.
 */

import { Agent, request } from 'node:http'
import { request as secureRequest, Agent as TlsAgent } from 'node:https'
import { setTimeout as sleep } from 'node:timers/promises'

/** At first, compilers and caches are cold, and what waits would still wait when the phases begin. */
const RAMP_MS = 5_000
const ORGS = 100
const POST_EVERY = 4
const COLD_EVERY = 250
const PATH = '/v2/example/endpoint'
const CONTENT = JSON.stringify({ text: 'x'.repeat(500) })
/** Longer than any limit of the proxy that a request may meet here. */
const PATIENCE_MS = 20_000
/** More handshakes at once would keep this process from its schedule. */
const MOST_CONNECTIONS = 64

/**
 * @typedef {object} Target
 * @property {number} port
 * @property {readonly string[]} [ca] The certificates to trust; plain HTTP without them.
 * @property {string} [key] Of the caller.
 */

/**
 * @typedef {object} Outcome
 * @property {number} startedAt
 * @property {number} endedAt
 * @property {boolean} isCold The Org had no token before.
 * @property {string} failure Status and code, or what broke; empty for 2xx.
 */

export class Load {
  /** @type {Outcome[]} */
  outcomes = []
  #client
  #isOver = false
  /** @type {Set<Promise<void>>} */
  #underway = new Set()
  #sent = 0
  #warm = 0
  #running
  #perSecond

  /**
   * @param {Target} target
   * @param {number} perSecond
   */
  constructor(target, perSecond) {
    this.#perSecond = perSecond
    this.#client = new Client(target)
    this.#running = this.#run()
  }

  /** From the next request on. @param {Target} target */
  aimAt(target) {
    this.#client = new Client(target)
  }

  /** How many requests have no answer yet. */
  get underway() {
    return this.#underway.size
  }

  /** Resolves when all requests have ended. */
  async stop() {
    this.#isOver = true
    await this.#running
    await Promise.all(this.#underway)
  }

  async #run() {
    let at = performance.now()
    const beganAt = at
    let due = 0
    while (!this.#isOver) {
      const now = performance.now()
      due += ((now - at) / 1_000) * this.#perSecond * Math.min(1, (now - beganAt) / RAMP_MS)
      at = now
      while (this.#sent < due) this.#sendNext()
      await sleep(1)
    }
  }

  #sendNext() {
    const number = this.#sent++
    const isCold = number % COLD_EVERY === 0
    const org = isCold ? `org-cold-${number}` : `org-${this.#warm++ % ORGS}`
    const startedAt = performance.now()
    const sending = this.#client.send(org, number % POST_EVERY === 0).then((failure) => {
      this.outcomes.push({ startedAt, endedAt: performance.now(), isCold, failure })
      this.#underway.delete(sending)
    })
    this.#underway.add(sending)
  }
}

export class Client {
  #target
  #agent

  /** @param {Target} target */
  constructor(target) {
    const { ca } = target
    this.#target = target
    const options = { keepAlive: true, maxSockets: MOST_CONNECTIONS }
    this.#agent = ca === undefined ? new Agent(options) : new TlsAgent({ ...options, ca: [...ca] })
  }

  /**
   * @param {string} org
   * @param {boolean} [isPost]
   * @returns {Promise<string>} what failed; empty if nothing did
   */
  send(org, isPost = false) {
    const { port, ca, key } = this.#target
    const content = isPost ? { 'content-type': 'application/json', 'content-length': CONTENT.length } : {}
    const headers = { 'x-org-id': org, ...(key !== undefined && { 'x-proxy-key': key }), ...content }
    const options = { host: '127.0.0.1', port, path: PATH, method: isPost ? 'POST' : 'GET', headers }
    return new Promise((resolve) => {
      const sent = (ca === undefined ? request : secureRequest)(
        { ...options, agent: this.#agent },
        async (response) => {
          try {
            let text = ''
            for await (const chunk of response.setEncoding('utf8')) text += chunk
            const { statusCode = 0 } = response
            const [, code = 'without a code'] = /"code":"(\w+)"/.exec(text) ?? []
            resolve(statusCode >= 200 && statusCode < 300 ? '' : `${statusCode} ${code}`)
          } catch (error) {
            resolve(`broken: ${codeOf(error)}`)
          }
        },
      )
      sent.setTimeout(PATIENCE_MS, () => sent.destroy(new Error('no answer in time')))
      sent.on('error', (error) =>
        resolve(`broken: ${codeOf(error)}${sent.reusedSocket ? ' on a kept connection' : ''}`),
      )
      sent.end(isPost ? CONTENT : undefined)
    })
  }
}

/** @param {unknown} error */
function codeOf(error) {
  if (!(error instanceof Error)) return String(error)
  return 'code' in error ? String(error.code) : error.message
}
