#!/usr/bin/env node
/** The process: takes the command line, runs the command, and ends with its exit code. */

import './early-signals.ts'
import { loadAdminAddress } from './cli/admin-address.ts'
import { checkHealth } from './cli/admin-client.ts'
import { parseArguments } from './cli/arguments.ts'
import { explainStartupFailure } from './cli/startup-failure.ts'
import { readVersion, revision } from './version.ts'

// Everything else is imported when it is needed: a start should be fast, and an import may fail, because no file can be opened
// any more.
async function run(): Promise<number> {
  const command = parseArguments(process.argv.slice(2))
  // The proxy goes on without a reader; a command that prints, such as in `check | head`, has nobody left to print for.
  if (command.name !== 'serve' && command.name !== 'healthcheck') {
    for (const stream of [process.stdout, process.stderr]) stream.on('error', () => process.exit(1))
  }
  switch (command.name) {
    case 'serve': {
      const { serve } = await import('./app/serve.ts')
      const running = await serve({ file: command.file, env: process.env }, command.files)
      return running.stopped
    }
    case 'check': {
      const { check } = await import('./cli/check.ts')
      return check(command, process.env)
    }
    case 'explain': {
      const { explain } = await import('./cli/explain.ts')
      return explain(command, process.env)
    }
    case 'probe': {
      const { probe } = await import('./cli/probe.ts')
      return probe(command, process.env)
    }
    case 'sandbox': {
      const { runSandbox } = await import('./sandbox/command.ts')
      return runSandbox(command)
    }
    case 'purge':
    case 'resume':
    case 'reload':
    case 'stop': {
      const actions = await import('./cli/actions.ts')
      const address = await loadAdminAddress({ file: command.file, env: process.env })
      return command.name === 'purge' ? actions.purge(address, command.operand) : actions[command.name](address)
    }
    case 'status': {
      const { printStatus } = await import('./cli/status.ts')
      const address = await loadAdminAddress({ file: command.file, env: process.env })
      return printStatus(address, command.json)
    }
    case 'healthcheck': {
      const asked = loadAdminAddress({ file: command.file, env: process.env }).then(checkHealth)
      return Math.min(1, await asked.catch(fail)) // health checks of Docker know 0 and 1 only
    }
    case 'help': {
      process.stdout.write(command.text ?? '')
      return 0
    }
    case 'version': {
      process.stdout.write(`${readVersion()} (revision ${revision}, Node ${process.versions.node})\n`)
      return 0
    }
  }
}

function fail(error: unknown): number {
  const { text, exitCode } = explainStartupFailure(error)
  process.stderr.write(text)
  return exitCode
}

process.exit(await run().catch(fail))
