/**
 * The cost of callers: CPU time of the proxy for a small GET with callers off, with 100 callers by key, with 100 by socket,
 * and with 100 by JWT (verified once, then remembered). The proxies run side by side and take turns in short windows, so
 * that other load on the machine affects all of them. The lowest cost of all rounds is the least disturbed one.
 *
 * node bench/callers/main.mjs [ROUNDS] [BEFORE]      after `npm run build`; BEFORE is the dist/main.js of an older build
 */

import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { Child } from '../harness/children.mjs'
import { freePort } from '../harness/ports.mjs'
import { cpuMicros } from '../harness/usage.mjs'
import { startNginxOrigin } from '../origins/nginx-origin.mjs'

const MAIN = fileURLToPath(new URL('../../dist/main.js', import.meta.url))
const CALLERS = 100
const CONNECTIONS = 16
const WINDOW_SECONDS = 1
const PROXY_CORE = 0

const rounds = Number(process.argv[2] ?? 20)
const before = process.argv[3]
const folder = mkdtempSync(join(tmpdir(), 'org-access-proxy-callers-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))

const { privateKey, publicKey } = await generateKeyPair('ES256')
writeFileSync(join(folder, 'jwks.json'), JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), kid: 'a' }] }))
// A projected token of Kubernetes has about this length.
const token = await new SignJWT({ 'kubernetes.io': { padding: 'x'.repeat(400) } })
  .setProtectedHeader({ alg: 'ES256', kid: 'a' })
  .setIssuer('https://issuer.example')
  .setAudience('org-access-proxy')
  .setSubject('caller-50')
  .setExpirationTime('1h')
  .sign(privateKey)

/** The callers in the middle of the list send the requests. */
const orgs = ['*']
const names = Array.from({ length: CALLERS }, (_, index) => `caller-${index}`)
for (const name of names) writeFileSync(join(folder, `${name}.key`), `the-key-of-${name}`, { mode: 0o600 })
const jwt = (/** @type {string} */ subject) => ({
  issuer: 'https://issuer.example',
  audience: 'org-access-proxy',
  subject,
  jwks: join(folder, 'jwks.json'),
})

/** @type {Record<string, { callers?: unknown[], key?: string, main?: string, socket?: string }>} */
const variants = {
  off: {},
  'off, again': {},
  ...(before === undefined ? {} : { before: { main: before } }),
  'by key': {
    callers: names.map((name) => ({ name, keyFiles: [join(folder, `${name}.key`)], orgs })),
    key: 'the-key-of-caller-50',
  },
  // Without callers, the proxy reads and drops the same field.
  'off, key sent': { key: 'the-key-of-caller-50' },
  'off, JWT sent': { key: token },
  'off, unix': { socket: join(folder, 'listen.sock') },
  'by socket': {
    callers: names.map((name) => ({ name, socket: join(folder, `${name}.sock`), orgs })),
    socket: join(folder, 'caller-50.sock'),
  },
  'by JWT': { callers: names.map((name) => ({ name, jwt: jwt(name), orgs })), key: token },
}

const origin = await startNginxOrigin(folder)
const proxies = []
for (const [name, { callers, key, socket, main = MAIN }] of Object.entries(variants)) {
  const port = await freePort()
  const own = join(folder, name.replaceAll(/\W/g, '-'))
  mkdirSync(own)
  writeFileSync(join(own, 'secret'), 'sandbox-secret-that-opens-nothing-else', { mode: 0o600 })
  const config = {
    appId: 'sandbox-app',
    appSecretFile: join(own, 'secret'),
    baseUrl: origin.url,
    listen: { address: name === 'off, unix' ? `unix:${socket}` : `127.0.0.1:${port}` },
    admin: { address: 'off' },
    ...(callers === undefined ? {} : { callers }),
  }
  writeFileSync(join(own, 'proxy.json'), JSON.stringify(config))
  const program = { command: process.execPath, args: [main, '--config', join(own, 'proxy.json')] }
  const child = new Child(program, { core: PROXY_CORE, folder: own, name: 'proxy' })
  proxies.push({ name, port, key, socket, child, costs: /** @type {number[]} */ ([]) })
}
for (const { port, socket } of proxies) await untilListening(socket ?? port)

/** @param {number | string} place */
async function untilListening(place) {
  for (;;) {
    const client = typeof place === 'number' ? connect(place, '127.0.0.1') : connect(place)
    const isThere = await once(client, 'connect').then(
      () => true,
      () => false,
    )
    client.destroy()
    if (isThere) return
    await sleep(50)
  }
}

/** wrk knows no unix sockets. @param {string} path */
async function loadSocket(path) {
  const request = 'GET /v2/small HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: acme\r\n\r\n'
  const deadline = performance.now() + WINDOW_SECONDS * 1_000
  let requests = 0
  const clients = Array.from({ length: CONNECTIONS }, async () => {
    const socket = connect(path)
    await once(socket, 'connect')
    while (performance.now() < deadline) {
      socket.write(request)
      const [answer] = await once(socket, 'data')
      if (!answer.toString('latin1').startsWith('HTTP/1.1 200')) throw new Error(`the load failed:\n${answer}`)
      requests++
    }
    socket.destroy()
  })
  await Promise.all(clients)
  return requests
}

/** @param {typeof proxies[number]} proxy */
async function measure({ port, key, socket, child }) {
  const startedAt = cpuMicros(child.pid)
  if (socket !== undefined) {
    const requests = await loadSocket(socket)
    return (cpuMicros(child.pid) - startedAt) / requests
  }
  const fields = key === undefined ? [] : ['-H', `X-Proxy-Key: ${key}`]
  const { stdout } = spawnSync(
    'taskset',
    [
      '-c',
      '1',
      'wrk',
      '-t1',
      `-c${CONNECTIONS}`,
      `-d${WINDOW_SECONDS}s`,
      '-H',
      'X-Org-Id: acme',
      ...fields,
      `http://127.0.0.1:${port}/v2/small`,
    ],
    { encoding: 'utf8' },
  )
  const requests = Number(/(\d+) requests in/.exec(stdout)?.[1])
  if (/Non-2xx/.test(stdout) || !(requests > 0)) throw new Error(`the load failed:\n${stdout}`)
  return (cpuMicros(child.pid) - startedAt) / requests
}

/** With which of the others each is compared; `off` where none is named. @type {Record<string, string>} */
const BASES = { 'by key': 'off, key sent', 'by socket': 'off, unix', 'by JWT': 'off, JWT sent' }
const WARM_UP_ROUNDS = 3
for (let round = -WARM_UP_ROUNDS; round < rounds; round++) {
  // Each round has another order, so that a busy moment of the machine does not always affect the same candidate.
  for (const proxy of proxies.toSorted(() => Math.random() - 0.5)) {
    const cost = await measure(proxy)
    if (round >= 0) proxy.costs.push(cost)
  }
}

const least = (/** @type {string} */ name) => Math.min(...(proxies.find((proxy) => proxy.name === name)?.costs ?? []))
process.stdout.write(`CPU time of the proxy for a small GET, Node ${process.versions.node}, ${rounds} rounds\n`)
for (const { name } of proxies) {
  const base = BASES[name] ?? 'off'
  const ratio = least(name) / least(base)
  process.stdout.write(`${name.padEnd(14)} ${least(name).toFixed(1)} µs  ${ratio.toFixed(3)} × ${base}\n`)
}
for (const { child } of proxies) await child.stop()
process.exit(0)
