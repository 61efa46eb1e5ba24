/** `explain`: asks the rules of admission what would happen to a request. Sends nothing. */

import { LiveRules } from '../app/rules.ts'
import { ReadFile } from '../config/files.ts'
import { loadConfig } from '../config/load.ts'
import type { Config } from '../config/schema.ts'
import type { Environment } from '../config/settings-file.ts'
import { causeOf, PROBLEMS, type RefusalCode } from '../errors.ts'
import { type Admission, admit, type Refusal } from '../gateway/admission.ts'
import { MalformedMessage } from '../http1/malformed.ts'
import { parseRequestHead } from '../http1/request-parser.ts'
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
  ['the syntax of HTTP', ['request_invalid', 'request_head_too_large', 'http_version_refused']],
  ['the method', ['method_refused']],
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
  const { caller } = command
  if (caller !== undefined && !config.callers.some(({ name }) => name === caller)) {
    throw new Error(
      `there is no caller ${JSON.stringify(caller)}: ${config.callers.map(({ name }) => name).join(', ') || 'none is configured'}`,
    )
  }
  const closed = closedDoor(config, caller)
  const admission = closed ?? judge(`${method} ${target}`, command, config)
  print(render(admission, command, config))
  return 'verdict' in admission && admission.verdict === 'admitted' ? 0 : 1
}

/** The caller cannot send a request to an app's listener at all. */
interface ClosedDoor {
  readonly setting: string
  readonly remedy: string
}

function closedDoor({ listen, callers }: Config, caller: string | undefined): ClosedDoor | undefined {
  if (listen.address === 'off') {
    return { setting: 'listen.address', remedy: 'It is off: this instance has no listener for apps. Ask a sidecar.' }
  }
  const hasMinterSocket = callers.some(({ name, minterSocket }) => name === caller && minterSocket !== undefined)
  if (!hasMinterSocket) return undefined
  const remedy = 'This caller has a socket at the minter alone. Give it another credential, or use another caller.'
  return { setting: 'callers[].minterSocket', remedy }
}

/** What the parser of the listener says about the octets of the request, and then the rules. */
function judge(requestLine: string, { org, caller }: ExplainCommand, config: Config): Admission | Refusal {
  const key = config.listen.callerKeyFile === undefined ? caller : ''
  const lines = [
    `${requestLine} HTTP/1.1`,
    'Host: localhost',
    ...(org === undefined ? [] : [`X-Org-Id: ${org.replaceAll('\r\n', '\n')}`]), // it begins no line of its own
    ...(key === undefined ? [] : [`X-Proxy-Key: ${keyOf(key)}`]),
  ]
  const rules = new LiveRules(withKnownKeys(config), {
    keySetUnavailable: () => undefined,
    keySetRecovered: () => undefined,
  })
  try {
    const head = parseRequestHead(`${lines.join('\r\n')}\r\n\r\n`, config.listen.maxHeadSizeBytes)
    return admit(head, rules.onSocket, () => 'explain')
  } catch (error) {
    if (!(error instanceof MalformedMessage)) throw error
    return { verdict: 'refused', code: error.refusalCode, hint: HINTS[error.reason] }
  } finally {
    rules.close()
  }
}

const HINTS: { readonly [R in MalformedMessage['reason']]?: string } = {
  bad_method: 'A method is a word of at most 32 characters, and a known one is written in capitals.',
  bad_target: 'A target is a path of visible ASCII characters.',
}

/** Every caller has a key, and no other credential: nothing is verified, and no key set is fetched. */
function withKnownKeys(config: Config): Config {
  const keyFile = (name: string) => new ReadFile('', new Secret(keyOf(name)), Buffer.alloc(0), 0)
  const callers = config.callers.map(({ name, orgs, routes, tokens, maxInFlight }) => {
    return { name, orgs, routes, tokens, maxInFlight, keyFiles: [keyFile(name)] }
  })
  const { callerKeyFile, ...listen } = config.listen
  return {
    ...config,
    callers,
    listen: callerKeyFile === undefined ? listen : { ...listen, callerKeyFile: keyFile('') },
  }
}

function render(admission: Admission | ClosedDoor, { org, caller, operand }: ExplainCommand, config: Config): string {
  const lines = [`${operand}${org === undefined ? ' without an Org' : ` for the Org ${org}`}`, '']
  if (config.listen.callerKeyFile !== undefined) lines.push('caller     whoever sends the key of listen.callerKeyFile')
  if (caller !== undefined) lines.push(`caller     ${caller}`)
  if (!('verdict' in admission)) {
    lines.push('refused    nobody takes the request', 'step       the listener')
    lines.push(`setting    ${admission.setting}`, `remedy     ${admission.remedy}`)
  } else if (admission.verdict === 'admitted') {
    const { method, target, orgId } = admission
    lines.push('admitted   every step lets it through')
    lines.push(`service    ${method} ${config.baseUrl.origin}${target}`)
    const id = orgId && config.orgs.ids?.get(orgId)
    const token = `the token of ${orgId}${id === undefined ? '' : `, which is ${id} at the token endpoint`}`
    lines.push(`with       ${orgId === undefined ? 'the credentials of the App (appRoutes)' : token}`)
  } else if (admission.verdict === 'refused') {
    const { code, setting } = admission
    const { status, detail } = PROBLEMS[code]
    const [step = 'the request'] = STEPS.find(([, codes]) => codes.includes(code)) ?? []
    lines.push(`refused    ${status} ${code}`)
    lines.push(`step       ${step}`)
    if (setting !== undefined) lines.push(`setting    ${setting}`)
    lines.push(`remedy     ${[causeOf(admission), detail].filter((text) => text !== undefined).join(' ')}`)
  }
  return `${lines.map((line) => line.replaceAll(/\p{Cc}/gu, encodeURIComponent)).join('\n')}\n`
}
