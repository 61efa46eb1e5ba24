/**
 * The sources of settings: a YAML file (JSON is YAML), and the environment. Both give text, lists and mappings of text; the
 * declaration decides what is a number.
 */

import type { Document, Node } from 'yaml'
import { parseSubnet } from '../http1/host.ts'
import { Secret } from '../secret.ts'
import { digestOf, FileUnreadable, readRegularFile } from '../watched-file.ts'
import { type Problem, WHOLE_FILE } from './problem.ts'
import type { ProxyVariables } from './schema.ts'
import { settings, unknownName } from './settings.ts'

export interface SettingsFile {
  readonly path: string
  /** Undefined if the file could not be read. */
  readonly digest: string | undefined
  /** Empty if there is a problem. */
  readonly content: Readonly<Record<string, unknown>>
  /** With the file as a whole. */
  readonly problem: Problem | undefined
  /** `FILE:LINE:COLUMN` of the value, or else of what contains it: an alias or a merge leads elsewhere. */
  readonly placeOf: (at: string) => string
}

/** Parsing takes about two seconds for a megabyte, and nothing else happens meanwhile. */
const MAX_FILE_BYTES = 512 * 1024

/** Never rejects because of the file: the result says what is wrong with it. */
export async function readSettingsFile(path: string): Promise<SettingsFile> {
  let digest: string | undefined
  const failed = (message: string, source = path): SettingsFile => {
    return { path, digest, content: {}, problem: { at: WHOLE_FILE, source, message }, placeOf: () => path }
  }
  try {
    const { bytes } = await readRegularFile(path, MAX_FILE_BYTES)
    digest = digestOf(bytes)
    // Imported here, so that a start without a file does not load the parser.
    const yaml = await import('yaml')
    const lines = new yaml.LineCounter()
    const place = (offset = 0) => {
      const { line, col } = lines.linePos(offset)
      return `${path}:${line}:${col}`
    }
    const document = yaml.parseDocument(bytes.toString('utf8'), {
      lineCounter: lines,
      schema: 'failsafe', // all is text, so `0660` stays what it is
      customTags: ['null'],
      merge: true,
      logLevel: 'error',
      prettyErrors: false,
      uniqueKeys: false, // the parser's own check takes twenty seconds for a large file that is none of ours
    })
    // Only the first fault: the others are mostly consequences of it.
    const fault = document.errors[0] ?? document.warnings[0]
    if (fault !== undefined) {
      // Its message quotes the text, which may be a secret. Its code does not.
      const found = fault.code.toLowerCase().replaceAll('_', ' ')
      const remedy = 'indent with spaces, and quote values with special characters'
      return failed(`is not valid YAML here (${found}): ${remedy}`, place(fault.pos[0]))
    }
    const twin = findTwin(yaml, document)
    if (twin !== undefined) return failed('gives this name twice: keep one', place(twin.range?.[0]))
    const content: unknown = document.toJS() ?? {}
    if (!isMapping(content)) return failed('is not a mapping: write lines of "key: value"', place())
    const placeOf = (at: string) => {
      const steps = at.match(/[^.[\]]+/g) ?? []
      for (; steps.length > 0; steps.pop()) {
        const node = document.getIn(steps, true) as Node | undefined
        if (node?.range) return place(node.range[0])
      }
      return place()
    }
    return { path, digest, content, problem: undefined, placeOf }
  } catch (error) {
    if (error instanceof FileUnreadable) return failed(error.message)
    // Thrown by `toJS`.
    if (error instanceof ReferenceError) return failed('has an alias ("*") without its anchor, or too many of them')
    throw error
  }
}

/** Returns the first name that a mapping has twice. */
function findTwin({ visit, isScalar }: typeof import('yaml'), document: Document): Node | undefined {
  let twin: Node | undefined
  visit(document, {
    Map(_, { items }) {
      const names = new Set<unknown>()
      // The set does not grow by a name that it has.
      const second = items.find(({ key }) => names.size === names.add(isScalar(key) ? key.value : key).size)
      twin ??= second?.key as Node | undefined
    },
  })
  return twin
}

export function isMapping(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export type Environment = Readonly<Record<string, string | undefined>>

/** Names the config file. The only `OAP_` variable that is not a setting. */
export const CONFIG_VARIABLE = 'OAP_CONFIG'

/** The settings in the environment, by key. An empty variable counts as not set: Compose and shells make such ones. */
export function readEnvironment(env: Environment): ReadonlyMap<string, string | string[]> {
  const given = settings.flatMap(({ key, variable, isList }) => {
    const text = env[variable] ?? ''
    return text === '' ? [] : [[key, isList ? text.split(',').map((item) => item.trim()) : text] as const]
  })
  return new Map(given)
}

const KNOWN = [CONFIG_VARIABLE, ...settings.map(({ variable }) => variable)]

/** One line each. Only warnings: Kubernetes sets `OAP_…` variables of its own for a service of that name. */
export function unknownVariables(env: Environment): string[] {
  const unknown = Object.keys(env).filter((name) => name.startsWith('OAP_') && !KNOWN.includes(name))
  return unknown.map((name) => `${name} ${unknownName(name, KNOWN, 'it is ignored')}`)
}

/** Options of Node that open its inspector, or write its memory, its profile, its environment or TLS keys to a file. */
const REVEALING = /^--(?:inspect(?!-port|-publish)|heapsnapshot-|heap-prof|cpu-prof|report-|tls-keylog|trace-tls)[^=]*/
const PRINTED = 'makes Node print parts of requests, with the secret and tokens among them: remove it'

/** One line each about what the environment, and `execArgv`, do to this process. */
export function environmentWarnings(env: Environment, usesProxy: boolean, execArgv = process.execArgv): string[] {
  const isSet = (name: string) => env[name] !== undefined && env[name] !== ''
  const proxies = ['HTTPS_PROXY', 'HTTP_PROXY', 'https_proxy', 'http_proxy'].filter(isSet)
  const options = [...execArgv, ...(env['NODE_OPTIONS'] ?? '').split(/\s+/)].flatMap(
    (option) => REVEALING.exec(option)?.[0] ?? [],
  )
  const warnings = [
    ...unknownVariables(env),
    ...(usesProxy ? noProxyWarnings(env) : proxies.map((name) => `${name} is ignored: ${TO_USE_PROXIES}`)),
    ...[...new Set(options)].map((option) => `${option} lets others read the secret and all tokens: remove it`),
    ...['NODE_DEBUG', 'NODE_DEBUG_NATIVE'].filter(isSet).map((name) => `${name} ${PRINTED}`),
  ]
  if (isSet('SSLKEYLOGFILE')) {
    warnings.push('SSLKEYLOGFILE may make TLS write its keys, so that others can read what is sent: remove it')
  }
  if (env['NODE_TLS_REJECT_UNAUTHORIZED'] === '0') {
    warnings.push('NODE_TLS_REJECT_UNAUTHORIZED is ignored: certificates are verified; see origin.caFile')
  }
  return warnings
}

const TO_USE_PROXIES = 'set origin.proxyFromEnv to true to use it'

function noProxyWarnings(env: Environment): string[] {
  const entries = (noProxyIn(env) ?? '').split(/[\s,]+/)
  const unknown = entries.filter(
    (entry) => /[*/]/.test(entry.replace(/^\*(\.|$)/, '')) && parseSubnet(entry) === undefined,
  )
  return unknown.map(
    (entry) => `NO_PROXY has ${JSON.stringify(entry)}, which matches nothing: write a name, *.name or a subnet`,
  )
}

function noProxyIn(env: Environment): string | undefined {
  return env['no_proxy'] || env['NO_PROXY'] || undefined
}

export function readProxyVariables(env: Environment, refuse: (at: string, message: string) => void): ProxyVariables {
  /** Lower case wins, as with curl. */
  const urlIn = (variable: string) => {
    const text = env[variable.toLowerCase()] || env[variable] || ''
    if (text === '') return undefined
    const isUrl = /^https?:\/\//.test(text) && URL.canParse(text)
    if (!isUrl)
      refuse('origin.proxyFromEnv', `needs an http(s) URL in ${variable}, such as http://proxy.example.com:3128`)
    return new Secret(text)
  }
  return { httpProxy: urlIn('HTTP_PROXY'), httpsProxy: urlIn('HTTPS_PROXY'), noProxy: noProxyIn(env) }
}
