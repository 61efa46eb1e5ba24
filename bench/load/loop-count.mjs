/** Preloaded into a process: on SIGUSR2, it writes to `LOOP_COUNT_FILE` how many turns its event loop has made. */

import { renameSync, writeFileSync } from 'node:fs'
import { performance } from 'node:perf_hooks'

const file = process.env['LOOP_COUNT_FILE'] ?? ''

process.on('SIGUSR2', () => {
  writeFileSync(`${file}.new`, String(performance.nodeTiming.uvMetricsInfo.loopCount))
  renameSync(`${file}.new`, file)
})
