/**
 * The settings in the environment, and what else it says. As the file, it gives text and lists of text: the declaration decides
 * what is a number.
 */

import { parseSubnet } from '../http1/host.ts'
import { Secret } from '../secret.ts'
import { quoted } from './problem.ts'
import type { ProxyVariables } from './schema.ts'
import { settings, unknownName } from './settings.ts'
import { CONFIG_VARIABLE, type Environment } from './settings-file.ts'

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

/** One line each about what the environment, and `execArgv`, do to this process. */
export function environmentWarnings(env: Environment, usesProxy: boolean, execArgv = process.execArgv): string[] {
  const given = (...names: string[]) => names.filter((name) => env[name] !== undefined && env[name] !== '')
  const options = [...execArgv, ...(env['NODE_OPTIONS'] ?? '').split(/\s+/)].flatMap(
    (option) => REVEALING.exec(option)?.[0] ?? [],
  )
  const revealing = [...new Set(options), ...given('NODE_DEBUG', 'NODE_DEBUG_NATIVE', 'SSLKEYLOGFILE')]
  const useless = given('ALL_PROXY', 'all_proxy')
  const ignored = given('HTTPS_PROXY', 'HTTP_PROXY', 'https_proxy', 'http_proxy')
  return [
    ...unknownVariables(env),
    ...(usesProxy
      ? noProxyWarnings(env)
      : ignored.map((name) => `${name} is ignored: set origin.proxyFromEnv to true to use it`)),
    ...useless.map((name) => `${name} is ignored: set HTTPS_PROXY or HTTP_PROXY, and origin.proxyFromEnv`),
    ...revealing.map((name) => `${name} lets others read the secret and all tokens: remove it`),
    ...(env['NODE_TLS_REJECT_UNAUTHORIZED'] === '0'
      ? ['NODE_TLS_REJECT_UNAUTHORIZED is ignored: certificates are verified; see origin.caFile']
      : []),
  ]
}

function noProxyWarnings(env: Environment): string[] {
  const entries = (noProxyIn(env) ?? '').split(/[\s,]+/)
  const unknown = entries.filter(
    (entry) => /[*/]/.test(entry.replace(/^\*(\.|$)/, '')) && parseSubnet(entry) === undefined,
  )
  return unknown.map(
    (entry) => `NO_PROXY has ${quoted(entry) || 'an entry'}, which matches nothing: write a name, *.name or a subnet`,
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
