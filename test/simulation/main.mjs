/**
 * `npm run simulate`: bundles the program and the simulation, and runs them under `--expose-internals`. README.md has the options.
 */

import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { rolldown } from 'rolldown'
import { measureFaults } from './faults/main.mjs'

const folder = mkdtempSync(join(tmpdir(), 'oap-simulation-'))
const root = fileURLToPath(new URL('../..', import.meta.url))
process.chdir(root)

/** The status page has no part in it. */
const withoutPage = {
  name: 'without-page',
  resolveId: (source) => (source === 'status-page-assets' ? '\0page' : undefined),
  load: (id) => (id === '\0page' ? "export const script = '', style = '', markup = ''" : undefined),
}

async function build(input, file, format, plugins = []) {
  const bundle = await rolldown({
    input: `test/simulation/${input}`,
    platform: 'node',
    tsconfig: 'tsconfig.json',
    resolve: { mainFields: ['module', 'main'] },
    transform: { target: 'es2022', define: { BUILD_VERSION: '"0.0.0"', BUILD_REVISION: '"simulated"' } },
    plugins: [...plugins, withoutPage],
    logLevel: 'silent',
  })
  await bundle.write({ file: join(folder, file), format, codeSplitting: false })
  await bundle.close()
}

async function run() {
  await Promise.all([build('program-entry.ts', 'program.cjs', 'cjs'), build('run.ts', 'run.mjs', 'esm')])
  const args = ['--no-warnings', '--expose-internals', join(folder, 'run.mjs'), folder, ...process.argv.slice(2)]
  const child = spawn(process.execPath, args, { stdio: 'inherit' })
  return await new Promise((resolve) => child.once('exit', (code) => resolve(code ?? 1)))
}

try {
  const args = process.argv.slice(2)
  process.exitCode = args.includes('--faults') ? Number(!(await measureFaults(folder, build, args))) : await run()
} finally {
  rmSync(folder, { recursive: true, force: true })
}
