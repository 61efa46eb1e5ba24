/** Twenty cold replicas get requests for the same orgs at the same moment, with and without a shared store. */

import { setTimeout as sleep } from 'node:timers/promises'
import { startCandidate } from '../candidates/candidate.mjs'
import { orgAccessProxy } from '../candidates/org-access-proxy.mjs'
import { freePort } from '../harness/ports.mjs'
import { alternate } from '../harness/samples.mjs'
import { quantile } from '../harness/statistics.mjs'
import { Connection, get } from '../load/connection.mjs'
import { missingStore, startStore } from '../origins/store.mjs'
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
  missing: missingStore,
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
  run: (bench) => alternate(bench, SUBJECTS, (subject) => measure(bench, subject)),
}

/**
 * @param {import('../harness/bench.mjs').Bench} bench
 * @param {Subject} subject
 */
async function measure(bench, { isShared }) {
  const { origin, folder } = bench
  const tokenService = await startTokenService(origin.tokenServicePort, folder, { mintLatencyMs: MINT_LATENCY_MS })
  const storePort = await freePort()
  const store = isShared ? await startStore(folder, storePort) : undefined
  const settings = { tokens: TOKENS, ...(store && { fleet: { ...FLEET, store: `redis://127.0.0.1:${storePort}` } }) }
  /** @type {import('../candidates/candidate.mjs').RunningProxy[]} */
  const replicas = []
  try {
    while (replicas.length < REPLICAS) {
      replicas.push(await startCandidate(bench, orgAccessProxy, { originUrl: origin.countedUrl, settings }))
    }
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
