/**
 * What `dist/` is made of: the program with the packages that it uses, in few files. A start opens these few instead of
 * some four hundred; see docs/decisions/0009-few-files.md.
 */

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { defineConfig, type Plugin } from 'rolldown'

const PACKAGE = /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/

export default defineConfig({
  input: {
    main: 'src/main.ts',
    'config/generate': 'src/config/generate.ts',
    'sandbox/demo': 'src/sandbox/demo.ts',
    'sandbox/sandbox': 'src/sandbox/sandbox.ts',
  },
  platform: 'node',
  tsconfig: 'tsconfig.build.json',
  // Node 20 has no `await using` of its own.
  transform: { target: 'es2023' },
  plugins: [licenses()],
  output: { dir: 'dist', chunkFileNames: 'chunks/[name].js' },
})

/** The packages may be copied if their licences go with them. */
function licenses(): Plugin {
  return {
    name: 'licenses',
    generateBundle(_, files) {
      const modules = Object.values(files).flatMap((file) => (file.type === 'chunk' ? file.moduleIds : []))
      const folders = new Set(modules.flatMap((id) => PACKAGE.exec(id)?.[0] ?? []))
      const source = [...folders].sort().map(describePackage).join('\n')
      this.emitFile({ type: 'asset', fileName: 'third-party-licenses.txt', source })
    },
  }
}

function describePackage(folder: string): string {
  const { name, version }: { name: string; version: string } = JSON.parse(
    readFileSync(join(folder, 'package.json'), 'utf8'),
  )
  const license = readdirSync(folder).find((file) => /^licen[cs]e/i.test(file))
  if (license === undefined) throw new Error(`${name} has no licence to go with it`)
  return `${name} ${version}\n\n${readFileSync(join(folder, license), 'utf8').trim()}\n`
}
