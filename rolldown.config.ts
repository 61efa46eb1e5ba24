/**
 * Builds `dist/`: the program and the packages that it uses, bundled into few files. Opening some four hundred files would
 * slow the start; see docs/decisions/0009-few-files.md.
 */

import { execFileSync, spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { defineConfig, type Plugin, rolldown } from 'rolldown'

const PACKAGE = /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/

/** All that the small commands need, and what else reads the settings file: in few files, too. */
const SMALL =
  /\/src\/(?:cli\/(?:arguments|commands|startup-failure|admin-address|admin-client)|config\/(?:problem|address)|version)\.ts$/
const SETTINGS_FILE = /\/src\/(?:config\/settings-file|watched-file|clock)\.ts$|\/helpers\/esm\/usingCtx/

/** What `serve` always needs: in one file, because each import between files costs the start. */
const SERVED =
  /\/src\/(?!admin\/page\/)(?:(?:admin|app|callers|config|gateway|http1|listener|minter|origin|token)\/|(?!main|early-signals)[\w-]+\.ts$)|status-page-assets$|\/node_modules\/(?:@?pino|sonic-boom|quick-format|safe-stable|on-exit|process-warning|fastest-leven)/
/** The sandbox needs them, too. */
const SHARED_PACKAGES = /\/node_modules\/(?:zod|lru-cache)\//

export default defineConfig({
  input: {
    main: 'src/main.ts',
    'sandbox/demo': 'src/sandbox/demo.ts',
    'sandbox/sandbox': 'src/sandbox/sandbox.ts',
    'sandbox/testing': 'src/sandbox/testing.ts',
  },
  platform: 'node',
  preserveEntrySignatures: 'allow-extension', // as the group of chunks asks for
  // What nobody imports can be left out of ES modules only. OpenTelemetry's packages then take 0.1 MB, and not 0.9.
  resolve: {
    mainFields: ['module', 'main'],
    alias: { yaml: join(import.meta.dirname, 'node_modules/yaml/browser/dist/index.js') },
  },
  tsconfig: 'tsconfig.build.json',
  // Node 20 does not know `await using`.
  transform: {
    target: 'es2023',
    define: { BUILD_VERSION: JSON.stringify(readPackage('.').version), BUILD_REVISION: JSON.stringify(revision()) },
  },
  plugins: [pinoAlone(), statusPageAssets(), configFileType(), thirdParty(), asciiAlone()],
  output: {
    dir: 'dist',
    chunkFileNames: 'chunks/[name].js',
    comments: { legal: true, annotation: false, jsdoc: false },
    codeSplitting: {
      includeDependenciesRecursively: false,
      groups: [
        { name: 'small', test: SMALL, priority: 1 },
        { name: 'settings-file', test: SETTINGS_FILE, priority: 1 },
        { name: 'serve', test: SERVED },
        { name: 'packages', test: SHARED_PACKAGES },
      ],
    },
  },
})

/** The commit, for `--version`. An image is built without the repository, and gets the commit as REVISION. */
function revision(): string {
  const { stdout } = spawnSync('git', ['rev-parse', '--short=12', 'HEAD'], { encoding: 'utf8' })
  return process.env['REVISION'] || stdout?.trim() || 'unknown'
}

/** pino's transports run in threads of their own. This program uses none, and a start need not load what they need. */
function pinoAlone(): Plugin {
  return {
    name: 'pino-alone',
    load: (id) =>
      /\/node_modules\/(?:sonic-boom\/|pino\/lib\/transport\.js$)/.test(id) ? 'module.exports = class {}' : undefined,
    transform: (code, id) =>
      id.endsWith('/pino/lib/tools.js')
        ? code.replace("require('worker_threads')", '{ isMainThread: true }')
        : undefined,
  }
}

/** The module `status-page-assets`: the script of the status page, bundled for browsers, with its style and markup. */
export function statusPageAssets(): Plugin {
  const id = 'status-page-assets'
  const folder = 'src/admin/page'
  return {
    name: id,
    resolveId: (source) => (source === id ? `\0${id}` : undefined),
    async load(resolved) {
      if (resolved !== `\0${id}`) return undefined
      const bundle = await rolldown({ input: `${folder}/main.ts`, tsconfig: `${folder}/tsconfig.json` })
      const { output } = await bundle.generate({ format: 'esm' })
      await bundle.close()
      const assets = {
        script: output[0].code,
        style: readFileSync(`${folder}/style.css`, 'utf8'),
        markup: readFileSync(`${folder}/index.html`, 'utf8'),
      }
      return Object.entries(assets)
        .map(([name, text]) => `export const ${name} = ${JSON.stringify(text)}\n`)
        .join('')
    },
  }
}

/** The type of a configuration file, without the types that it is derived from: no user of `startProxy` has these. */
function configFileType(): Plugin {
  return {
    name: 'config-file-type',
    generateBundle() {
      const type = typeOf(JSON.parse(readFileSync('config/schema.json', 'utf8')))
      const fileName = 'sandbox/config-file.d.ts'
      this.emitFile({ type: 'asset', fileName, source: `export type ConfigFile = ${type};\n` })
    },
  }
}

interface JsonSchema {
  readonly type?: string | readonly string[]
  readonly enum?: readonly string[]
  readonly anyOf?: readonly JsonSchema[]
  readonly items?: JsonSchema
  readonly properties?: Readonly<Record<string, JsonSchema>>
  readonly additionalProperties?: JsonSchema | boolean
}

/** TypeScript for a schema of the kinds that `config/schema.json` has. */
function typeOf({ type = [], enum: choices, anyOf, items, properties, additionalProperties }: JsonSchema): string {
  if (properties !== undefined) {
    const members = Object.entries(properties).map(([name, schema]) => `readonly ${name}?: ${typeOf(schema)}`)
    return `{ ${members.join('; ')} }`
  }
  if (choices !== undefined) return choices.map((choice) => `'${choice}'`).join(' | ')
  if (items !== undefined) return `readonly (${typeOf(items)})[]`
  if (typeof additionalProperties === 'object') return `Readonly<Record<string, ${typeOf(additionalProperties)}>>`
  const types = anyOf?.map(typeOf) ?? [type].flat().map((name) => name.replace('integer', 'number'))
  return [...new Set(types)].join(' | ')
}

/**
 * Writes other characters as escapes: a file with a single one that Latin-1 does not know takes two octets for each character in
 * memory, for as long as the program runs.
 */
function asciiAlone(): Plugin {
  const escaped = (character: string) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
  return {
    name: 'ascii-alone',
    generateBundle(_, files) {
      for (const file of Object.values(files)) {
        if (file.type === 'chunk') file.code = file.code.replaceAll(/[^\0-\x7f]/g, escaped)
      }
    },
  }
}

/** The bundled packages: their licences, which must come with them, and a bill of materials (SBOM) for scanners. */
function thirdParty(): Plugin {
  return {
    name: 'third-party',
    generateBundle(_, files) {
      const modules = Object.values(files).flatMap((file) => (file.type === 'chunk' ? file.moduleIds : []))
      const folders = new Set(modules.flatMap((id) => PACKAGE.exec(id)?.[0] ?? []))
      const packages = [...folders].sort().map(readPackage)
      const licenses = packages.map(({ name, version, text }) => `${name} ${version}\n\n${text}\n`).join('\n')
      this.emitFile({ type: 'asset', fileName: 'third-party-licenses.txt', source: licenses })
      this.emitFile({ type: 'asset', fileName: 'sbom.cdx.json', source: billOfMaterials(packages) })
    },
  }
}

interface BundledPackage {
  readonly name: string
  readonly version: string
  /** Text of the licence. */
  readonly text: string
}

function readPackage(folder: string): BundledPackage {
  const manifest: Omit<BundledPackage, 'text'> = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  const { name, version } = manifest
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry))
  const text = file === undefined ? mitLicense(name) : readFileSync(join(folder, file), 'utf8')
  return { name, version, text: text.trim() }
}

/**
 * What `npm sbom` knows of the bundled packages (CycloneDX). Without time and serial number, so that the same source gives
 * the same file.
 */
function billOfMaterials(packages: readonly BundledPackage[]): string {
  const args = ['sbom', '--sbom-format=cyclonedx', '--package-lock-only']
  const document = JSON.parse(execFileSync('npm', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] }))
  const { metadata } = document
  const bundled = new Set(packages.map(({ name, version }) => `${name}@${version}`))
  const isBundled = (reference: string) => bundled.has(reference) || reference === metadata.component['bom-ref']
  metadata.component.name = 'org-access-proxy' // npm takes the name of the folder
  delete metadata.timestamp
  delete document.serialNumber
  document.components = document.components.filter((each: { 'bom-ref': string }) => isBundled(each['bom-ref']))
  document.dependencies = document.dependencies
    .filter(({ ref }: { ref: string }) => isBundled(ref))
    .map(({ ref, dependsOn }: { ref: string; dependsOn: string[] }) => ({
      ref,
      dependsOn: dependsOn.filter(isBundled),
    }))
  return `${JSON.stringify(document, null, 2)}\n`
}

/** Packages that are under the MIT licence but do not contain its text, with the notice of their repository. */
const COPYRIGHT: Readonly<Record<string, string>> = { '@redis/client': 'Copyright (c) 2022-2025, Redis, inc.' }

/** The licence of this project is the same one. */
function mitLicense(name: string): string {
  const copyright = COPYRIGHT[name]
  if (copyright === undefined) throw new Error(`${name} has no licence to go with it`)
  const text = readFileSync('LICENSE', 'utf8')
  return `MIT License\n\n${copyright}\n\n${text.slice(text.indexOf('Permission is hereby granted'))}`
}
