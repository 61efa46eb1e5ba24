/** What changes under load, in turn, and which requests cannot but fail meanwhile. */

import { copyFileSync, renameSync, writeFileSync } from 'node:fs'
import { connect } from 'node:tls'
import { Client } from './load.mjs'
import { configFile, until, writeSecret } from './programs.mjs'

/**
 * @typedef {object} Scene
 * @property {import('./programs.mjs').Programs} programs
 * @property {import('./load.mjs').Load} load
 * @property {() => Promise<void>} stay Lets a state last.
 * @property {() => void} gone From now on, some requests must fail,
 * @property {() => void} back until now.
 */

/**
 * @typedef {object} Phase
 * @property {string} name
 * @property {(scene: Scene) => Promise<void>} change
 * @property {Necessity} [must] Fails because of it, while something is gone.
 */

/**
 * @typedef {object} Necessity
 * @property {string} who
 * @property {(outcome: import('./load.mjs').Outcome) => boolean} holdsFor
 * @property {number} [graceMs] Behind the return.
 */

const NEW_SECRET = 'another-secret-that-opens-nothing-else'
const NEW_KEY = 'the-third-key-of-the-apps'

/** @type {(codes: RegExp) => Necessity} */
const withoutToken = (codes) => ({
  who: 'first requests of an Org: nobody can mint its token',
  holdsFor: ({ isCold, failure }) => isCold && codes.test(failure),
})

/** @type {readonly Phase[]} */
export const PHASES = [
  { name: 'quiet', change: async () => undefined },
  {
    name: 'reload: SIGHUP and the command',
    change: async ({ programs: { proxy, at, settings }, stay }) => {
      proxy.lines.forget()
      configFile(at('proxy.json'), { ...settings, routes: { allow: ['* /v2/*'] } })
      process.kill(proxy.pid, 'SIGHUP')
      await proxy.lines.until('configuration applied')
      await stay()
      configFile(at('proxy.json'), { ...settings, routes: { allow: ['* /*'] } })
      const told = await proxy.command('reload')
      if (!told.includes('configuration applied')) throw new Error(`the command told: ${told}`)
    },
  },
  {
    name: 'App secret',
    change: async ({ programs, stay }) => {
      const { service, proxy, at, secret } = programs
      proxy.lines.forget()
      await service.running.set({ appSecret: [secret, NEW_SECRET] })
      writeSecret(at('secret'), NEW_SECRET)
      await proxy.lines.until('new secret accepted by the token endpoint')
      await stay()
      await service.running.set({ appSecret: NEW_SECRET })
      programs.secret = NEW_SECRET
    },
  },
  {
    name: "listener's certificate",
    change: async ({ programs: { proxyTarget, at } }) => {
      const { port, ca } = proxyTarget
      const before = await certificateOf(port, ca)
      for (const file of ['certificate.pem', 'key.pem']) {
        copyFileSync(at(`next-certificate/${file}`), at('next.pem'))
        renameSync(at('next.pem'), at(file))
      }
      await until('the new certificate', async () => (await certificateOf(port, ca)) !== before || undefined)
    },
  },
  {
    name: "caller's key",
    change: async ({ programs: { proxyTarget, at }, load, stay }) => {
      const next = { ...proxyTarget, key: NEW_KEY }
      writeSecret(at('second.key'), NEW_KEY)
      await untilAnswered(next, '')
      load.aimAt(next)
      await stay()
      writeSecret(at('first.key'), 'nobody-has-this-key-of-the-apps')
      await untilAnswered(proxyTarget, '403 caller_refused')
      proxyTarget.key = NEW_KEY
    },
  },
  {
    name: 'store away and back',
    change: async ({ programs: { store, proxy }, stay }) => {
      proxy.lines.forget()
      await store.stop()
      await proxy.lines.until('fleet store lost: this replica mints for itself')
      await stay()
      await store.start()
      await proxy.lines.until('fleet store available')
    },
  },
  {
    name: 'collector away and back',
    change: async ({ programs: { collector }, stay }) => {
      await collector.stop()
      await stay()
      await collector.start()
      await until('spans', async () => (await collector.running.batches()) > 0 || undefined)
    },
  },
  {
    name: 'resolver fails, hangs, is back',
    change: async ({ programs: { proxy, at }, stay }) => {
      writeFileSync(at('resolver'), 'failure')
      await proxy.untilWarning('name_unresolved', true)
      await stay()
      writeFileSync(at('resolver'), 'silence')
      await stay()
      writeFileSync(at('resolver'), 'answer')
      await proxy.untilWarning('name_unresolved', false)
    },
  },
  {
    name: 'token endpoint: 500',
    change: (scene) => failMints(scene, { kind: 'status', status: 500 }),
    must: withoutToken(/^503 token_endpoint_unavailable$/),
  },
  {
    name: 'token endpoint: no answer',
    change: (scene) => failMints(scene, { kind: 'hang' }),
    must: withoutToken(/^504 token_endpoint_timeout$/),
  },
  {
    name: 'service away and back',
    change: async ({ programs: { service, secret }, stay, gone, back }) => {
      gone()
      await service.stop()
      await stay()
      await service.start(secret)
      back()
    },
    must: { who: 'all: the service is not there', holdsFor: ({ failure }) => /^50[234] /.test(failure) },
  },
  {
    name: 'upgrade: a second process on the socket',
    change: async ({ programs: { proxy } }) => {
      const former = proxy.pid
      await proxy.start()
      await end(former)
    },
  },
  {
    name: 'restart: connections wait in the socket',
    change: async ({ programs: { proxy } }) => {
      await end(proxy.pid)
      await proxy.start()
    },
  },
  {
    name: 'sidecar: minter away and back',
    change: async ({ programs: { minter, sidecar, sidecarTarget }, load, stay, gone, back }) => {
      load.aimAt(sidecarTarget)
      await stay()
      sidecar.forget()
      gone()
      await minter.stop()
      await sidecar.until('minter lost: tokens that are held go on working')
      await stay()
      await minter.start()
      back()
      await sidecar.until('minter available')
    },
    must: { ...withoutToken(/^503 token_endpoint_unavailable$/), graceMs: 5_000 },
  },
]

/**
 * @param {Scene} scene
 * @param {object} fault
 */
async function failMints({ programs: { service }, stay, gone, back }, fault) {
  gone()
  await service.running.set({ mintFaults: [fault] })
  await stay()
  await service.running.set({ mintFaults: [] })
  back()
}

/**
 * Asks a process to stop, and waits for its end.
 * @param {number} pid
 */
async function end(pid) {
  process.kill(pid, 'SIGTERM')
  await until(`the end of process ${pid}`, () => {
    try {
      process.kill(pid, 0)
      return undefined
    } catch {
      return true
    }
  })
}

/**
 * On connections of its own.
 * @param {import('./load.mjs').Target} target
 * @param {string} failure
 */
async function untilAnswered(target, failure) {
  await until(`"${failure}" for this key`, async () => {
    return (await new Client(target).send('org-0')) === failure || undefined
  })
}

/**
 * The fingerprint of the certificate that a new connection sees.
 * @param {number} port
 * @param {readonly string[]} ca
 * @returns {Promise<string>}
 */
function certificateOf(port, ca) {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port, ca: [...ca] }, () => {
      resolve(socket.getPeerCertificate().fingerprint256)
      socket.destroy()
    })
    socket.on('error', reject)
  })
}
