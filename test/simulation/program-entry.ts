/** What the simulation runs: `main.ts` without the command line and signals. */

import { orgStatuses } from '../../src/admin/status.ts'
import { startApp } from '../../src/app/app.ts'
import { Log } from '../../src/app/log.ts'
import { loadConfig } from '../../src/config/load.ts'

export const program = { startApp, Log, loadConfig, orgStatuses }
