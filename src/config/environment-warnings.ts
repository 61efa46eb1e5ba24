/** Variables and options of Node itself that undo what this program promises: warned about at start, never obeyed silently. */

import type { Environment } from './environment.ts'

export interface ProcessFacts {
  readonly env: Environment
  /** `process.execArgv`. */
  readonly execArgv: readonly string[]
  /** `process.versions.node`. */
  readonly nodeVersion: string
  /** Wall clock. */
  readonly today: Date
  /** `origin.proxyFromEnv`. */
  readonly usesProxyFromEnv: boolean
}

/** Last day of support by major version, from the release schedule of Node.js. */
const END_OF_LIFE: Readonly<Record<string, string>> = {
  '20': '2026-04-30',
  '21': '2024-06-01',
  '22': '2027-04-30',
  '23': '2025-06-01',
  '24': '2028-04-30',
  '25': '2026-06-01',
  '26': '2029-04-30',
}

const RISKY_OPTIONS: readonly (readonly [option: RegExp, consequence: string])[] = [
  [/^--inspect/, 'opens a debugger, through which the secret and all tokens can be read'],
  [/^--heapsnapshot-/, 'writes heap snapshots, which hold the secret and all tokens'],
  [/^--(heap-prof|cpu-prof)/, 'writes profiles of this process to disk'],
  [/^--report-/, 'writes reports, which hold the environment'],
  [/^--tls-keylog/, 'writes the keys of all TLS connections to disk'],
  [/^--tls-min-v1\.[01]$/, 'permits versions of TLS that are broken'],
  [/^--insecure-http-parser/, 'permits malformed requests, which open the way to request smuggling'],
]

const RISKY_VARIABLES: readonly (readonly [variable: string, consequence: string])[] = [
  ['NODE_DEBUG', 'makes Node print the fields of requests, credentials among them'],
  ['NODE_DEBUG_NATIVE', 'makes Node print the fields of requests, credentials among them'],
  ['SSLKEYLOGFILE', 'is meant to write the keys of TLS connections to disk'],
]

const PROXY_VARIABLES = ['HTTP_PROXY', 'HTTPS_PROXY', 'http_proxy', 'https_proxy', 'NODE_USE_ENV_PROXY']

/** One line each. No value is repeated: the URL of a proxy may hold a password. */
export function environmentWarnings(facts: ProcessFacts): string[] {
  return [
    ...tlsWarnings(facts),
    ...optionWarnings(facts),
    ...RISKY_VARIABLES.filter(([variable]) => isSet(facts, variable)).map(
      ([variable, consequence]) => `${variable} is set: it ${consequence}; unset it outside of debugging`,
    ),
    ...proxyWarnings(facts),
    ...endOfLifeWarnings(facts),
  ]
}

function tlsWarnings({ env: { NODE_TLS_REJECT_UNAUTHORIZED } }: ProcessFacts): string[] {
  if (NODE_TLS_REJECT_UNAUTHORIZED !== '0') return []
  return [
    'NODE_TLS_REJECT_UNAUTHORIZED=0 is set: it turns off the check of certificates; unset it and name the CA in origin.caFile',
  ]
}

function optionWarnings({ env: { NODE_OPTIONS = '' }, execArgv }: ProcessFacts): string[] {
  const options = [...NODE_OPTIONS.split(/\s+/), ...execArgv]
  return RISKY_OPTIONS.flatMap(([pattern, consequence]) => {
    const found = options.find((option) => pattern.test(option))
    // Without what follows `=`, which may be a path or an address that is nobody's business.
    return found === undefined ? [] : [`Node runs with ${found.split('=', 1)[0]}: it ${consequence}`]
  })
}

function proxyWarnings(facts: ProcessFacts): string[] {
  const names = PROXY_VARIABLES.filter((variable) => isSet(facts, variable))
  if (facts.usesProxyFromEnv) {
    return names.length > 0 ? [] : ['origin.proxyFromEnv is true, but neither HTTPS_PROXY nor HTTP_PROXY is set']
  }
  return names.map((name) => `${name} is set and ignored: set origin.proxyFromEnv to true to honour it`)
}

function endOfLifeWarnings({ nodeVersion, today }: ProcessFacts): string[] {
  const lastDay = END_OF_LIFE[nodeVersion.split('.', 1)[0] ?? '']
  if (lastDay === undefined || today <= new Date(`${lastDay}T23:59:59Z`)) return []
  return [`Node ${nodeVersion} gets no security fixes since ${lastDay}: run a supported version`]
}

function isSet(facts: ProcessFacts, variable: string): boolean {
  return (facts.env[variable] ?? '') !== ''
}
