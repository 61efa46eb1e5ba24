/** Twenty cold replicas get requests for the same orgs at the same moment, with and without a shared store. */

import { execFileSync } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { startCandidate } from '../candidates/candidate.mjs'
import { orgAccessProxy } from '../candidates/org-access-proxy.mjs'
import { Child, isInstalled, LOAD_CORE } from '../harness/children.mjs'
import { freePort } from '../harness/ports.mjs'
import { alternate } from '../harness/samples.mjs'
import { quantile } from '../harness/statistics.mjs'
import { Connection, get } from '../load/connection.mjs'
import { startTokenService } from '../origins/token-service.mjs'
import { LATENCY_COLUMNS } from './scenario.mjs'

const REPLICAS = 20
const ORGS = 20
const MINT_LATENCY_MS = 20
/** All replicas and the store share two cores here, so the store answers later than it would on its own core. */
const FLEET = { timeout: '2s' }
const TOKENS = { mintRate: 100_000 }

/** @typedef {{ name: string, isShared: boolean }} Subject */

/** @type {Subject[]} */
const SUBJECTS = [
  { name: 'each for itself', isShared: false },
  { name: 'with a shared store', isShared: true },
]

/** @type {import('./scenario.mjs').Scenario} */
export const coldFleet = {
  name: 'cold-fleet',
  title: `Cold fleet: ${REPLICAS} replicas, each asked for ${ORGS} orgs without a token, all at once`,
  about:
    `Each org is asked for once through each replica. A mint takes ${MINT_LATENCY_MS} ms. The replicas share one core, so the ` +
    'seconds say little; the counts do not depend on the machine. *Scripts* are the operations on the store.',
  missing: () => (isInstalled('redis-server') ? undefined : 'no redis-server'),
  rowTitle: 'replicas',
  columns: [
    { title: 'mints', metric: 'mints', digits: 0 },
    { title: 'seconds', metric: 'seconds', digits: 2 },
    { title: 'answered 200', metric: 'answered', digits: 0 },
    ...LATENCY_COLUMNS,
    { title: 'scripts at the store', metric: 'scripts', digits: 0 },
    { title: 'scripts per request', metric: 'scriptsPerRequest', digits: 2 },
    { title: 'bytes in the store per org', metric: 'bytesPerOrg', digits: 0 },
  ],
  run: (bench) =>
    alternate(
      bench,
      SUBJECTS,
      (subject) => subject.name,
      (subject) => measure(bench, subject),
    ),
}

/**
 * @param {import('../harness/bench.mjs').Bench} bench
 * @param {Subject} subject
 */
async function measure({ origin, folder }, { isShared }) {
  const service = { port: origin.tokenServicePort, folder, mintLatencyMs: MINT_LATENCY_MS }
  const tokenService = await startTokenService(service)
  const store = isShared ? await startStore(folder) : undefined
  const settings = { tokens: TOKENS, ...(store && { fleet: { ...FLEET, store: `redis://127.0.0.1:${store.port}` } }) }
  const where = { originUrl: origin.countedUrl, caFile: origin.caFile, folder, settings }
  /** @type {import('../candidates/candidate.mjs').RunningProxy[]} */
  const replicas = []
  try {
    for (let i = 0; i < REPLICAS; i += 1) replicas.push(await startCandidate(orgAccessProxy, where))
    const before = { mints: await tokenService.mints(), scripts: store?.scripts() ?? 0, bytes: store?.bytes() ?? 0 }
    const outcome = await askAll(replicas.map(({ port }) => port))
    await sleep(200) // what is published behind the answers
    const requests = REPLICAS * ORGS
    const scripts = (store?.scripts() ?? 0) - before.scripts
    const bytes = (store?.bytes() ?? 0) - before.bytes
    const mints = (await tokenService.mints()) - before.mints
    return { mints, ...outcome, scripts, scriptsPerRequest: scripts / requests, bytesPerOrg: bytes / ORGS }
  } finally {
    await Promise.all(replicas.map((replica) => replica.stop()))
    await store?.stop()
    await tokenService.stop()
  }
}

/** @param {readonly number[]} ports */
async function askAll(ports) {
  /** @type {number[]} */
  const latenciesMs = []
  let answered = 0
  const connections = await Promise.all(
    ports.flatMap((port) =>
      Array.from({ length: ORGS }, async (_, org) => ({ port, org, is: await Connection.open(port) })),
    ),
  )
  const startedAt = performance.now()
  await Promise.all(
    connections.map(async ({ port, org, is }) => {
      const sentAt = performance.now()
      const status = await is.send(get(port, '/v2/small', `fleet-${org}`))
      latenciesMs.push(performance.now() - sentAt)
      if (Number(status) === 200) answered += 1
    }),
  )
  const seconds = (performance.now() - startedAt) / 1_000
  for (const { is } of connections) is.close()
  return { seconds, answered, p50Ms: quantile(latenciesMs, 0.5), p99Ms: quantile(latenciesMs, 0.99) }
}

/** @param {string} folder */
async function startStore(folder) {
  const port = await freePort()
  const args = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--dir', folder]
  const child = new Child({ command: 'redis-server', args }, { core: LOAD_CORE, folder, name: 'store' })
  /** @param {string[]} command */
  const cli = (...command) =>
    execFileSync('redis-cli', ['-p', String(port), ...command], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    })
  for (let attempt = 0; attempt < 100; attempt += 1) {
    try {
      if (cli('ping').includes('PONG')) break
    } catch {
      await sleep(20)
    }
  }
  return {
    port,
    scripts: () => Number(/cmdstat_eval:calls=(\d+)/.exec(cli('info', 'commandstats'))?.[1] ?? 0),
    /** Of the tokens and leases, not of the server. */
    bytes: () =>
      cli('--scan', '--pattern', '*:t')
        .split('\n')
        .filter((key) => key !== '')
        .reduce((sum, key) => sum + Number(cli('memory', 'usage', key)), 0),
    stop: () => child.stop(),
  }
}
