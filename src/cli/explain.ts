/** `explain`: asks the rules of admission what would happen to a request. Sends nothing. */

import { LiveRules } from '../app/rules.ts'
import { ReadFile } from '../config/files.ts'
import { loadConfig } from '../config/load.ts'
import type { Config } from '../config/schema.ts'
import type { Environment } from '../config/settings-file.ts'
import { causeOf, PROBLEMS, type RefusalCode } from '../errors.ts'
import { type Admission, admit } from '../gateway/admission.ts'
import { Secret } from '../secret.ts'

export interface ExplainCommand {
  readonly file?: string | undefined
  readonly org?: string | undefined
  readonly caller?: string | undefined
  /** `METHOD /path`. */
  readonly operand?: string | undefined
}

/** What each step of admission looks at, in its order. */
const STEPS: readonly (readonly [name: string, codes: readonly RefusalCode[]])[] = [
  ['the method', ['http_version_refused', 'method_refused']],
  ['the caller', ['caller_refused']],
  ['the path', ['target_invalid', 'host_refused']],
  ['the token endpoint, which is closed', ['token_endpoint_refused']],
  ['the routes', ['route_refused']],
  ['the Org', ['org_id_missing', 'org_id_invalid', 'org_not_allowed']],
]

/** A credential that each caller has here: who sends the request is known. */
const keyOf = (name: string) => `explain-${name}`

/** Resolves with the exit code: 0 if the request would be admitted. @throws {ConfigRefused} */
export async function explain(
  command: ExplainCommand,
  env: Environment,
  print: (text: string) => unknown = (text) => process.stdout.write(text),
): Promise<0 | 1> {
  const { config } = await loadConfig({ file: command.file, env })
  const [method = '', target = '', ...rest] = (command.operand ?? '').trim().split(/ +/)
  if (target === '' || rest.length > 0) throw new Error('write the request as "METHOD /path"')
  const { org, caller } = command
  if (caller !== undefined && !config.callers.some(({ name }) => name === caller)) {
    throw new Error(
      `there is no caller ${JSON.stringify(caller)}: ${config.callers.map(({ name }) => name).join(', ') || 'none is configured'}`,
    )
  }
  const key = config.listen.callerKeyFile === undefined ? caller : ''
  const head = {
    method,
    target,
    minorVersion: 1 as const,
    contentLength: undefined,
    isChunked: false,
    keepsAlive: true,
    rawFields: [
      'host',
      'localhost',
      ...(org === undefined ? [] : ['x-org-id', org]),
      ...(key === undefined ? [] : ['x-proxy-key', keyOf(key)]),
    ],
  }
  const rules = new LiveRules(withKnownKeys(config), {
    keySetUnavailable: () => undefined,
    keySetRecovered: () => undefined,
  })
  const admission = admit(head, rules.onSocket, () => 'explain')
  rules.close()
  print(render(admission, command, config))
  return admission.verdict === 'admitted' ? 0 : 1
}

/** Every caller has a key, and no other credential: nothing is verified, and no key set is fetched. */
function withKnownKeys(config: Config): Config {
  const keyFile = (name: string) => new ReadFile('', new Secret(keyOf(name)), Buffer.alloc(0), 0)
  const callers = config.callers.map(({ name, orgs, routes, maxInFlight }) => {
    return { name, orgs, routes, maxInFlight, keyFiles: [keyFile(name)] }
  })
  const { callerKeyFile, ...listen } = config.listen
  return {
    ...config,
    callers,
    listen: callerKeyFile === undefined ? listen : { ...listen, callerKeyFile: keyFile('') },
  }
}

function render(admission: Admission, { org, caller, operand }: ExplainCommand, config: Config): string {
  const lines = [`${operand}${org === undefined ? ' without an Org' : ` for the Org ${org}`}`, '']
  if (config.listen.callerKeyFile !== undefined) lines.push('caller     whoever sends the key of listen.callerKeyFile')
  if (caller !== undefined) lines.push(`caller     ${caller}`)
  if (admission.verdict === 'admitted') {
    const { method, target, orgId } = admission
    lines.push('admitted   every step lets it through')
    lines.push(`service    ${method} ${config.baseUrl.origin}${target}`)
    lines.push(
      `with       ${orgId === undefined ? 'the Basic credentials of the App (appRoutes)' : `the token of ${orgId}`}`,
    )
  } else if (admission.verdict === 'refused') {
    const { code, setting } = admission
    const { status, detail } = PROBLEMS[code]
    const [step = 'the request'] = STEPS.find(([, codes]) => codes.includes(code)) ?? []
    lines.push(`refused    ${status} ${code}`)
    lines.push(`step       ${step}`)
    if (setting !== undefined) lines.push(`setting    ${setting}`)
    lines.push(`remedy     ${causeOf(admission) ?? detail}`)
  }
  return `${lines.map((line) => line.replaceAll(/\p{Cc}/gu, encodeURIComponent)).join('\n')}\n`
}
