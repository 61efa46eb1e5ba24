/** Reads environment variables: settings under `OAP_`, and proxies if `origin.proxyFromEnv` is set. */

import { Secret } from '../secret.ts'
import type { Given } from './problem.ts'
import type { ProxyVariables } from './schema.ts'
import { type Notation, nearest, removalOf, type SettingKey, settings } from './settings.ts'
import { Unsuitable } from './types.ts'

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

const PROXY_VARIABLES = ['HTTP_PROXY', 'HTTPS_PROXY', 'http_proxy', 'https_proxy', 'NODE_USE_ENV_PROXY']

/** One line each. No value is repeated: the URL of a proxy may contain a password. */
export function environmentWarnings(env: Environment, usesProxy: boolean): string[] {
  const proxies = PROXY_VARIABLES.filter((variable) => isSet(env, variable))
  return [
    ...unknownVariables(env),
    ...emptyVariables(env),
    ...(usesProxy && proxies.length === 0
      ? ['origin.proxyFromEnv is true, but neither HTTPS_PROXY nor HTTP_PROXY is set']
      : []),
    ...(usesProxy
      ? []
      : proxies.map((name) => `${name} is set and ignored: set origin.proxyFromEnv to true to use it`)),
  ]
}

function isSet(env: Environment, variable: string): boolean {
  return (env[variable] ?? '') !== ''
}

/** Warns, because an empty variable may have been meant as a limit. */
function emptyVariables(env: Environment): string[] {
  const empty = settings.flatMap(({ variable }) => (variable !== undefined && env[variable] === '' ? [variable] : []))
  return empty.length === 0 ? [] : [`these variables are empty and count as not set: ${empty.join(', ')}`]
}

/** Warns only: Kubernetes sets `OAP_…` variables of its own for a service of that name. */
function unknownVariables(env: Environment): string[] {
  return namesOfUnknown(env).map((name) => {
    const removal = removalOf(name)
    if (removal !== undefined) return `${name} ${removal}`
    const meant = nearest(name, KNOWN)
    return `${name} is not a setting and is ignored${meant === undefined ? '' : `: did you mean ${meant}?`}`
  })
}

const KNOWN = [CONFIG_VARIABLE, ...settings.flatMap(({ variable }) => variable ?? [])]

function namesOfUnknown(env: Environment): string[] {
  return Object.keys(env)
    .filter((name) => name.startsWith('OAP_') && !KNOWN.includes(name))
    .sort()
}

/** The variable that was probably meant to be `variable`, which is missing. */
export function misspelt(env: Environment, variable: string | undefined): string | undefined {
  return namesOfUnknown(env).find((name) => nearest(name, KNOWN) === variable)
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
