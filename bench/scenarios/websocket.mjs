/** WebSocket messages through a tunnel. */

import { fileURLToPath } from 'node:url'
import { startCandidate } from '../candidates/candidate.mjs'
import { Child, LOAD_CORE, runLoad } from '../harness/children.mjs'
import { freePort } from '../harness/ports.mjs'
import { untilAnswering } from '../harness/readiness.mjs'
import { alternate } from '../harness/samples.mjs'
import { cpuMicros, peakResidentBytes } from '../harness/usage.mjs'
import { CPU_RATIO_COLUMN, LATENCY_COLUMNS, PEAK_COLUMN, ratioToDirect } from './scenario.mjs'

const SERVER = fileURLToPath(new URL('../origins/websocket-server.mjs', import.meta.url))
const CLIENT = fileURLToPath(new URL('../load/websocket-messages.mjs', import.meta.url))
const CONNECTIONS = 64
const MESSAGE_BYTES = 128
const WARM_UP_SECONDS = 2

/** @type {import('./scenario.mjs').Scenario} */
export const websocket = {
  name: 'websocket',
  title: `WebSocket messages of ${MESSAGE_BYTES} bytes and their echoes, ${CONNECTIONS} connections`,
  about: 'One message is a way to the origin and a way back.',
  rowTitle: 'candidate',
  columns: [
    { title: 'CPU µs/message', metric: 'cpuMicros', digits: 1 },
    CPU_RATIO_COLUMN,
    { title: 'messages/s', metric: 'messagesPerSecond', digits: 0 },
    ratioToDirect('messages/s', 'messagesPerSecond'),
    ...LATENCY_COLUMNS,
    PEAK_COLUMN,
  ],
  run: async (bench) => {
    const port = await freePort()
    const program = { command: process.execPath, args: [SERVER, String(port)] }
    const server = new Child(program, { core: LOAD_CORE, folder: bench.folder, name: 'websocket-server' })
    try {
      await untilAnswering(port, '/v2/small', server)
      return await alternate(
        bench,
        bench.candidates.filter((candidate) => candidate.tunnelsWebSockets),
        (candidate) => measure(bench, candidate, `http://127.0.0.1:${port}`),
      )
    } finally {
      await server.stop()
    }
  },
}

/**
 * @param {import('../harness/bench.mjs').Bench} bench
 * @param {import('../candidates/candidate.mjs').Candidate} candidate
 * @param {string} originUrl
 */
async function measure(bench, candidate, originUrl) {
  const proxy = await startCandidate(bench, candidate, { originUrl })
  try {
    const url = `${proxy.url.replace('http', 'ws')}/v2/socket`
    const args = [CLIENT, url, CONNECTIONS, MESSAGE_BYTES, WARM_UP_SECONDS, bench.options.seconds].map(String)
    /** @type {number[]} */
    const cpuReadings = []
    const lines = await runLoad({ command: process.execPath, args }, () => {
      cpuReadings.push(proxy.pid === undefined ? Number.NaN : cpuMicros(proxy.pid))
    })
    const [begin, end] = lines.map((line) => JSON.parse(line))
    const [cpuBefore = Number.NaN, cpuAfter = Number.NaN] = cpuReadings
    const messages = end.messages - begin.messages
    return {
      ...(proxy.pid !== undefined && {
        cpuMicros: (cpuAfter - cpuBefore) / messages,
        peakBytes: peakResidentBytes(proxy.pid),
      }),
      messagesPerSecond: messages / end.seconds,
      p50Ms: end.p50Ms,
      p99Ms: end.p99Ms,
    }
  } finally {
    await proxy.stop()
  }
}
