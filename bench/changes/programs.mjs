/** The programs of the run: the proxy on its socket, a minter with its sidecar, and all that they depend on. */

import { execFile } from 'node:child_process'
import { copyFileSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { APP_ID, APP_SECRET, productProgram } from '../candidates/org-access-proxy.mjs'
import { Child, LOAD_CORE, PROXY_CORE, tied } from '../harness/children.mjs'
import { freePort } from '../harness/ports.mjs'
import { fetchText, untilAnswering } from '../harness/readiness.mjs'
import { makeCertificate } from '../origins/nginx-origin.mjs'
import { startStore } from '../origins/store.mjs'
import { startTokenService } from '../origins/token-service.mjs'

const DEADLINE_MS = 20_000
const NAME_OF_SERVICE = 'service.test'
/** Tokens are replaced in the last tenth of it, so an outage of some seconds is shorter. */
const SERVICE = { tokenLifetimeMs: 200_000, statedEnds: ['expires_in'], mintLatencyMs: 20 }

/** @typedef {Awaited<ReturnType<typeof startPrograms>>} Programs */

/** @param {string} folder */
export async function startPrograms(folder) {
  const [servicePort, storePort, collectorPort] = [await freePort(), await freePort(), await freePort()]
  const [proxyPort, sidecarPort, minterPort] = [await freePort(), await freePort(), await freePort()]
  const at = (/** @type {string} */ name) => join(folder, name)
  for (const name of ['certificate', 'next-certificate']) makeCertificate(mkdirIn(folder, name))
  writeSecret(at('secret'), APP_SECRET)
  writeSecret(at('first.key'), 'the-first-key-of-the-apps')
  writeSecret(at('second.key'), 'the-second-key-of-the-apps')
  writeSecret(at('sidecar.key'), 'the-key-of-the-sidecar')
  writeFileSync(at('resolver'), 'answer')
  for (const file of ['certificate.pem', 'key.pem']) copyFileSync(at(`certificate/${file}`), at(file))

  const app = { appId: APP_ID, appSecretFile: at('secret') }
  const baseUrl = `http://${NAME_OF_SERVICE}:${servicePort}`
  /** Connections are young, so that each phase opens some. */
  const origin = { allowInsecure: true, maxConnectionAge: '5s' }
  const log = { requests: 'errors' }
  const callers = [{ name: 'apps', keyFiles: [at('first.key'), at('second.key')], orgs: ['*'] }]
  const settings = {
    ...app,
    baseUrl,
    origin,
    log,
    callers,
    listen: {
      address: `127.0.0.1:${proxyPort}`,
      tls: { certFile: at('certificate.pem'), keyFile: at('key.pem') },
    },
    fleet: { store: `redis://127.0.0.1:${storePort}` },
    traces: { endpoint: `http://127.0.0.1:${collectorPort}/v1/traces`, sample: 0.1 },
    shutdown: { delay: '1s' },
  }
  const proxyConfig = configFile(at('proxy.json'), settings)
  const minterConfig = configFile(at('minter.json'), {
    ...app,
    baseUrl: `http://127.0.0.1:${servicePort}`,
    listen: { address: 'off' },
    admin: { address: 'off' },
    minter: { address: `127.0.0.1:${minterPort}` },
    callers: [{ name: 'sidecar', keyFiles: [at('sidecar.key')], tokens: true, orgs: ['*'] }],
  })
  const sidecarConfig = configFile(at('sidecar.json'), {
    baseUrl: `http://127.0.0.1:${servicePort}`,
    log,
    listen: { address: `127.0.0.1:${sidecarPort}` },
    admin: { address: 'off' },
    minter: { url: `http://127.0.0.1:${minterPort}`, keyFile: at('sidecar.key') },
  })

  const service = await Restartable.start(
    (secret) => startTokenService(servicePort, folder, SERVICE, secret),
    APP_SECRET,
  )
  const store = await Restartable.start(() => startStore(folder, storePort))
  const collector = await Restartable.start(() => startCollector(folder, collectorPort))
  const minter = await Restartable.start(() => startServing(minterConfig, LOAD_CORE, folder, 'minter'))
  const { lines: sidecar } = await startServing(sidecarConfig, PROXY_CORE, folder, 'sidecar')
  const resolver = { RESOLVER_NAME: NAME_OF_SERVICE, RESOLVER_FILE: at('resolver') }
  const proxy = await HeldProxy.start(proxyPort, proxyConfig, folder, resolver)
  const ca = ['certificate', 'next-certificate'].map((name) => readFileSync(at(`${name}/certificate.pem`), 'utf8'))
  return {
    service,
    store,
    collector,
    minter,
    sidecar,
    proxy,
    at,
    settings,
    secret: APP_SECRET,
    proxyTarget: { port: proxyPort, ca, key: readFileSync(at('first.key'), 'utf8') },
    sidecarTarget: { port: sidecarPort },
  }
}

/**
 * A program that goes away and comes back.
 * @template {{ stop: () => Promise<void> }} Running
 * @template {readonly unknown[]} [Args=[]]
 */
class Restartable {
  #start
  running

  /**
   * @param {(...args: Args) => Promise<Running>} start
   * @param {Running} running
   */
  constructor(start, running) {
    this.#start = start
    this.running = running
  }

  /**
   * @template {{ stop: () => Promise<void> }} Running
   * @template {readonly unknown[]} Args
   * @param {(...args: Args) => Promise<Running>} start
   * @param {Args} args
   */
  static async start(start, ...args) {
    return new Restartable(start, await start(...args))
  }

  stop() {
    return this.running.stop()
  }

  /** @param {Args} args */
  async start(...args) {
    this.running = await this.#start(...args)
  }
}

/** The lines of a log from some moment on. */
class Lines {
  #file
  #seen = 0

  /** @param {string} file */
  constructor(file) {
    this.#file = file
  }

  /** Lines before this moment no longer count. */
  forget() {
    this.#seen = this.#read().length
  }

  /**
   * Resolves with the first that has this message.
   * @param {string} message
   * @returns {Promise<any>}
   */
  async until(message) {
    return until(`the line "${message}"`, () => {
      const line = this.#read()
        .slice(this.#seen)
        .split('\n')
        .find((text) => text.includes(`"msg":"${message}"`))
      return line === undefined ? undefined : JSON.parse(line)
    })
  }

  #read() {
    return readFileSync(this.#file, 'utf8')
  }
}

/** The proxy on a socket that outlives its processes. */
class HeldProxy {
  #holder
  #folder
  #config
  lines
  /** Of the process that was started last. */
  pid = 0
  #number = 0

  /**
   * @param {Child} holder
   * @param {string} folder
   * @param {string} config
   */
  constructor(holder, folder, config) {
    this.#holder = holder
    this.#folder = folder
    this.#config = config
    this.lines = new Lines(join(folder, 'proxy.out'))
  }

  /**
   * @param {number} port
   * @param {string} config
   * @param {string} folder
   * @param {Readonly<Record<string, string>>} env
   */
  static async start(port, config, folder, env) {
    const { command, args } = productProgram('serve', '--config', config)
    const preload = ['--import', new URL('resolver.mjs', import.meta.url).href]
    const script = fileURLToPath(new URL('hold-socket.py', import.meta.url))
    const holding = [script, String(port), folder, ...tied, command, ...preload, ...args]
    const holder = new Child({ command: 'python3', args: holding, env }, { core: PROXY_CORE, folder, name: 'proxy' })
    const proxy = new HeldProxy(holder, folder, config)
    await proxy.#untilReady()
    return proxy
  }

  /** Another process, beside those that still run. */
  async start() {
    this.lines.forget()
    this.#number += 1
    this.#holder.signal('SIGUSR1')
    await this.#untilReady()
  }

  async #untilReady() {
    this.pid = (await this.lines.until('start')).pid
    await this.lines.until('ready')
  }

  /**
   * A command of the program for the process that was started last.
   * @param {readonly string[]} words
   * @returns {Promise<string>} its output
   */
  async command(...words) {
    const { command, args } = productProgram(...words, '--config', this.#config)
    const env = { PATH: process.env.PATH, OAP_ADMIN_ADDRESS: `unix:${this.#folder}/${this.#number}.sock` }
    return (await promisify(execFile)(command, args, { env })).stdout
  }

  /**
   * @param {string} code
   * @param {boolean} isThere
   */
  async untilWarning(code, isThere) {
    await until(`the ${isThere ? 'begin' : 'end'} of the warning ${code}`, async () => {
      const { warnings } = JSON.parse(await this.command('status', '--json'))
      const codes = warnings.map((/** @type {{ code: string }} */ warning) => warning.code)
      return codes.includes(code) === isThere || undefined
    })
  }
}

/**
 * @param {string} folder
 * @param {number} port
 */
async function startCollector(folder, port) {
  const script = fileURLToPath(new URL('../origins/collector.mjs', import.meta.url))
  const program = { command: process.execPath, args: [script, String(port)] }
  const child = new Child(program, { core: LOAD_CORE, folder, name: 'collector' })
  await untilAnswering(port, '/', child)
  return {
    batches: async () => Number(await fetchText(`http://127.0.0.1:${port}/`)),
    stop: () => child.stop(),
  }
}

/**
 * A process with this configuration, ready.
 * @param {string} config
 * @param {number} core
 * @param {string} folder
 * @param {string} name
 */
async function startServing(config, core, folder, name) {
  const child = new Child(productProgram('serve', '--config', config), { core, folder, name })
  const lines = new Lines(join(folder, `${name}.out`))
  await lines.until('ready')
  return { lines, stop: () => child.stop() }
}

/**
 * Resolves with the first result that is not undefined.
 * @template T
 * @param {string} what
 * @param {() => T | undefined | Promise<T | undefined>} condition
 * @returns {Promise<T>}
 */
export async function until(what, condition) {
  const deadline = performance.now() + DEADLINE_MS
  while (performance.now() < deadline) {
    const result = await condition()
    if (result !== undefined) return result
    await sleep(50)
  }
  throw new Error(`${what} did not come`)
}

/**
 * Takes the place of the file at once.
 * @param {string} file
 * @param {string} text
 */
export function writeSecret(file, text) {
  writeFileSync(`${file}.next`, text, { mode: 0o600 })
  renameSync(`${file}.next`, file)
}

/**
 * JSON is YAML.
 * @param {string} file
 * @param {object} settings
 */
export function configFile(file, settings) {
  writeFileSync(file, JSON.stringify(settings))
  return file
}

/**
 * @param {string} folder
 * @param {string} name
 */
function mkdirIn(folder, name) {
  mkdirSync(join(folder, name))
  return join(folder, name)
}
