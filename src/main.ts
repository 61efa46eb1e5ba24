#!/usr/bin/env node
/** The process: command line in, exit code out. With config/ the only reader of the environment. */

import { parseArguments } from './cli/arguments.ts'
import { explainStartupFailure } from './startup-failure.ts'

async function run(): Promise<number> {
  const command = parseArguments(process.argv.slice(2))
  // Each command imports what it needs: the time from spawn to the first response counts.
  switch (command.name) {
    case 'serve': {
      const { serve } = await import('./serve.ts')
      const running = await serve({ file: command.file, env: process.env })
      return running.stopped
    }
    case 'check': {
      const { runCheck } = await import('./cli/run-check.ts')
      return runCheck(command, process.env)
    }
    case 'sandbox': {
      const { runSandbox } = await import('./sandbox/command.ts')
      return runSandbox({ port: command.port, env: process.env })
    }
    case 'healthcheck': {
      const { loadAdminAddress } = await import('./config/load.ts')
      const { checkHealth } = await import('./cli/healthcheck.ts')
      const address = await loadAdminAddress({ file: command.file, env: process.env }).catch((error: unknown) => {
        fail(error)
        return 'off' as const
      })
      return checkHealth(address, process.stderr)
    }
    case 'help': {
      const { helpText } = await import('./cli/help.ts')
      process.stdout.write(helpText)
      return 0
    }
    case 'version': {
      const { readVersion } = await import('./cli/version.ts')
      process.stdout.write(`${readVersion()}\n`)
      return 0
    }
  }
}

function fail(error: unknown): number {
  const { lines, exitCode } = explainStartupFailure(error)
  for (const line of lines) process.stderr.write(`${line}\n`)
  return exitCode
}

process.exit(await run().catch(fail))
