/**
 * Reads environment variables: settings under `OAP_`, and proxies if `origin.proxyFromEnv` is set. Warns about variables and
 * options of Node that weaken the program.
 */

import { Secret } from '../secret.ts'
import { type Given, Unsuitable } from './problem.ts'
import { type Notation, nearest, removalOf, type SettingKey, settings } from './settings.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/** Names the config file. The only `OAP_` variable that is not a setting. */
export const CONFIG_VARIABLE = 'OAP_CONFIG'

/** An empty variable counts as not set, because Compose and shells turn a variable that is not set into an empty one. */
export function readEnvironment(env: Environment): ReadonlyMap<SettingKey, Given> {
  const values = new Map<SettingKey, Given>()
  for (const { key, variable, notation } of settings) {
    const text = variable === undefined ? '' : (env[variable] ?? '')
    if (variable === undefined || text === '') continue
    values.set(key, { value: decode(text, notation), source: { kind: 'environment', variable } })
  }
  return values
}

/** Leaves text that cannot be decoded as it is: the setting's own check then reports it. */
function decode(text: string, notation: Notation): unknown {
  switch (notation) {
    case 'text':
    case 'mappings':
      return text
    case 'number':
      return /^\d+(\.\d+)?$/.test(text) ? Number(text) : text
    case 'flag':
      return text === 'true' ? true : text === 'false' ? false : text
    case 'text list':
      return items(text)
    case 'number list':
      return items(text).map((item) => decode(item, 'number'))
  }
}

function items(text: string): string[] {
  return text.split(',').map((item) => item.trim())
}

/** Warns, because an empty variable may have been meant as a limit. */
export function emptyVariables(env: Environment): string[] {
  const empty = settings.flatMap(({ variable }) => (variable !== undefined && env[variable] === '' ? [variable] : []))
  return empty.length === 0 ? [] : [`these variables are empty and count as not set: ${empty.join(', ')}`]
}

/** Warns only: Kubernetes sets `OAP_…` variables of its own for a service of that name. */
export function unknownVariables(env: Environment): string[] {
  const known = [CONFIG_VARIABLE, ...settings.flatMap(({ variable }) => variable ?? [])]
  return Object.keys(env)
    .filter((name) => name.startsWith('OAP_') && !known.includes(name))
    .sort()
    .map((name) => {
      const removal = removalOf(name)
      if (removal !== undefined) return `${name} ${removal}`
      const meant = nearest(name, known)
      return `${name} is not a setting and is ignored${meant === undefined ? '' : `: did you mean ${meant}?`}`
    })
}

/** The proxies that the environment names. */
export interface ProxyVariables {
  /** A URL. It may contain a password. */
  readonly httpProxy: Secret | undefined
  readonly httpsProxy: Secret | undefined
  readonly noProxy: string | undefined
}

/** Lower case wins, as with curl. @throws {Unsuitable} */
export function readProxyVariables(env: Environment): ProxyVariables {
  const { no_proxy, NO_PROXY } = env
  return {
    httpProxy: proxyUrl(env, 'http_proxy') ?? proxyUrl(env, 'HTTP_PROXY'),
    httpsProxy: proxyUrl(env, 'https_proxy') ?? proxyUrl(env, 'HTTPS_PROXY'),
    noProxy: no_proxy || NO_PROXY || undefined,
  }
}

function proxyUrl(env: Environment, variable: string): Secret | undefined {
  const text = env[variable] ?? ''
  if (text === '') return undefined
  if (!/^https?:\/\//.test(text) || !URL.canParse(text)) {
    throw new Unsuitable(`needs an http(s) URL in ${variable}, such as http://proxy.example.com:3128`)
  }
  return new Secret(text)
}

export interface ProcessFacts {
  readonly env: Environment
  /** `process.execArgv`. */
  readonly execArgv: readonly string[]
  /** `process.versions.node`. */
  readonly nodeVersion: string
  /** `origin.proxyFromEnv`. */
  readonly usesProxyFromEnv: boolean
}

/** Older major versions get no security fixes. */
const OLDEST_MAINTAINED_NODE = 22
/** The newest major version that the tests run on. */
const NEWEST_TESTED_NODE = 26

const RISKY_OPTIONS: readonly (readonly [option: RegExp, consequence: string])[] = [
  [/^--inspect/, 'opens a debugger, which can read the secret and all tokens'],
  [/^--heapsnapshot-/, 'writes heap snapshots, which contain the secret and all tokens'],
  [/^--(heap-prof|cpu-prof)/, 'writes profiles of this process to disk'],
  [/^--report-/, 'writes reports, which contain the environment'],
  [/^--tls-keylog/, 'writes the keys of all TLS connections to disk'],
  [/^--tls-min-v1\.[01]$/, 'permits broken versions of TLS'],
  [/^--insecure-http-parser/, 'permits malformed requests, which make request smuggling possible'],
]

const RISKY_VARIABLES: readonly (readonly [variable: string, consequence: string])[] = [
  ['NODE_DEBUG', 'makes Node print the fields of requests, including credentials'],
  ['NODE_DEBUG_NATIVE', 'makes Node print the fields of requests, including credentials'],
  ['SSLKEYLOGFILE', 'asks for the keys of TLS connections to be written to disk'],
]

const PROXY_VARIABLES = ['HTTP_PROXY', 'HTTPS_PROXY', 'http_proxy', 'https_proxy', 'NODE_USE_ENV_PROXY']

/** One line each. No value is repeated: the URL of a proxy may contain a password. */
export function environmentWarnings(facts: ProcessFacts): string[] {
  const risky = RISKY_VARIABLES.filter(([variable]) => isSet(facts, variable))
  return [
    ...tlsWarnings(facts),
    ...optionWarnings(facts),
    ...risky.map(([variable, consequence]) => `${variable} is set: it ${consequence}; unset it outside of debugging`),
    ...proxyWarnings(facts),
    ...versionWarnings(facts),
  ]
}

function tlsWarnings({ env: { NODE_TLS_REJECT_UNAUTHORIZED } }: ProcessFacts): string[] {
  if (NODE_TLS_REJECT_UNAUTHORIZED !== '0') return []
  const consequence = 'it turns off the check of certificates; unset it and name the CA in origin.caFile'
  return [`NODE_TLS_REJECT_UNAUTHORIZED=0 is set: ${consequence}`]
}

function optionWarnings({ env: { NODE_OPTIONS = '' }, execArgv }: ProcessFacts): string[] {
  const options = [...NODE_OPTIONS.split(/\s+/), ...execArgv]
  return RISKY_OPTIONS.flatMap(([pattern, consequence]) => {
    const found = options.find((option) => pattern.test(option))
    // Without the part after `=`, which may be a private path or address.
    return found === undefined ? [] : [`Node runs with ${found.split('=', 1)[0]}: it ${consequence}`]
  })
}

function proxyWarnings(facts: ProcessFacts): string[] {
  const names = PROXY_VARIABLES.filter((variable) => isSet(facts, variable))
  if (facts.usesProxyFromEnv) {
    return names.length > 0 ? [] : ['origin.proxyFromEnv is true, but neither HTTPS_PROXY nor HTTP_PROXY is set']
  }
  return names.map((name) => `${name} is set and ignored: set origin.proxyFromEnv to true to use it`)
}

function versionWarnings({ nodeVersion }: ProcessFacts): string[] {
  const major = Number.parseInt(nodeVersion, 10)
  if (major < OLDEST_MAINTAINED_NODE) {
    return [`Node ${nodeVersion} gets no security fixes any more: run Node ${OLDEST_MAINTAINED_NODE} or newer`]
  }
  if (major <= NEWEST_TESTED_NODE) return []
  return [`Node ${nodeVersion} is newer than ${NEWEST_TESTED_NODE}, the newest version this release was tested with`]
}

function isSet(facts: ProcessFacts, variable: string): boolean {
  return (facts.env[variable] ?? '') !== ''
}
