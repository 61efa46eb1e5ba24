/** The price of a minter: cold requests, and requests whose token is held, through a proxy alone and through a sidecar. */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { startCandidate } from '../candidates/candidate.mjs'
import { orgAccessProxy, productProgram } from '../candidates/org-access-proxy.mjs'
import { Child, LOAD_CORE } from '../harness/children.mjs'
import { freePort } from '../harness/ports.mjs'
import { alternate } from '../harness/samples.mjs'
import { quantile } from '../harness/statistics.mjs'
import { Connection, get } from '../load/connection.mjs'
import { startTokenService } from '../origins/token-service.mjs'
import { FAILURES_COLUMN } from './scenario.mjs'

const COLD = 200
const HITS = 4_000
const MINT_LATENCY_MS = 20
const TOKENS = { mintRate: 100_000 }
const ALONE = 'a proxy alone'
const SIDECAR = 'a sidecar of a minter'

/** @type {import('./scenario.mjs').Scenario} */
export const minter = {
  name: 'minter',
  title: `Minter: ${COLD} orgs without a token, one after the other; then one org`,
  about:
    `One request at a time. A mint takes ${MINT_LATENCY_MS} ms. The minter runs on the core of the load, and the sidecar asks it ` +
    'with a key over loopback.',
  rowTitle: 'proxy',
  columns: [
    { title: 'cold p50 ms', metric: 'coldP50Ms', digits: 2 },
    { title: 'cold p99 ms', metric: 'coldP99Ms', digits: 2 },
    { title: 'cold p50: sidecar ÷ it', ratioOf: 'coldP50Ms', of: SIDECAR },
    { title: 'held p50 ms', metric: 'heldP50Ms', digits: 3 },
    { title: 'held p99 ms', metric: 'heldP99Ms', digits: 3 },
    { title: 'held p50: sidecar ÷ it', ratioOf: 'heldP50Ms', of: SIDECAR },
    { title: 'mints', metric: 'mints', digits: 0 },
    FAILURES_COLUMN,
  ],
  run: (bench) =>
    alternate(
      bench,
      [ALONE, SIDECAR].map((name) => ({ name })),
      ({ name }) => measure(bench, name === SIDECAR),
    ),
}

/**
 * @param {import('../harness/bench.mjs').Bench} bench
 * @param {boolean} isSidecar
 */
async function measure(bench, isSidecar) {
  const { origin, folder } = bench
  const tokenService = await startTokenService(origin.tokenServicePort, folder, { mintLatencyMs: MINT_LATENCY_MS })
  const minterPort = await freePort()
  const keyFile = join(folder, 'sidecar.key')
  writeFileSync(keyFile, 'the-key-of-the-sidecar', { mode: 0o600 })
  const key = { minter: { url: `http://127.0.0.1:${minterPort}`, keyFile } }
  const running = isSidecar ? startMinter(origin.countedUrl, folder, minterPort, keyFile) : undefined
  const settings = { tokens: TOKENS, ...(isSidecar && key) }
  const proxy = await startCandidate(bench, orgAccessProxy, { originUrl: origin.countedUrl, settings })
  try {
    const connection = await Connection.open(proxy.port)
    let failures = 0
    /** @param {string} org */
    const timed = async (org) => {
      const sentAt = performance.now()
      if ((await connection.send(get(proxy.port, '/v2/small', org))) !== 200) failures += 1
      return performance.now() - sentAt
    }
    const cold = []
    for (let i = 0; i < COLD; i += 1) cold.push(await timed(`cold-${i}`))
    const held = []
    for (let i = 0; i < HITS; i += 1) held.push(await timed('cold-0'))
    connection.close()
    return {
      coldP50Ms: quantile(cold, 0.5),
      coldP99Ms: quantile(cold, 0.99),
      heldP50Ms: quantile(held, 0.5),
      heldP99Ms: quantile(held, 0.99),
      mints: await tokenService.mints(),
      failures,
    }
  } finally {
    await proxy.stop()
    await running?.stop()
    await tokenService.stop()
  }
}

/**
 * @param {string} originUrl
 * @param {string} folder
 * @param {number} port
 * @param {string} keyFile
 */
function startMinter(originUrl, folder, port, keyFile) {
  const secretFile = join(folder, 'minter.secret')
  writeFileSync(secretFile, 'sandbox-secret-that-opens-nothing-else', { mode: 0o600 })
  const config = {
    appId: 'sandbox-app',
    appSecretFile: secretFile,
    baseUrl: originUrl,
    listen: { address: 'off' },
    admin: { address: 'off' },
    tokens: TOKENS,
    minter: { address: `127.0.0.1:${port}` },
    callers: [{ name: 'sidecar', keyFiles: [keyFile], tokens: true, orgs: ['*'] }],
  }
  const file = join(folder, 'minter.yaml')
  writeFileSync(file, JSON.stringify(config))
  // The start of the sidecar waits for its first answer, and so for this one.
  return new Child(productProgram('serve', '--config', file), { core: LOAD_CORE, folder, name: 'minter' })
}
