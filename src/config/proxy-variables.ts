/** The variables that name proxies towards the service, read only where `origin.proxyFromEnv` says so. */

import { Secret } from '../secret.ts'
import type { ProxyVariables } from '../undici.ts'
import type { Environment } from './environment.ts'
import { Unsuitable } from './unsuitable.ts'

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
