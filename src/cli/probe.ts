/** `probe`: measures the service with one Org, and prints what it found and the settings that follow. */

import { randomBytes } from 'node:crypto'
import { createInterface } from 'node:readline/promises'
import { LiveConnections, openMintPool, openPool, openWire } from '../app/pools.ts'
import { now, sleep } from '../clock.ts'
import { loadConfig } from '../config/load.ts'
import { type Config, declaration } from '../config/schema.ts'
import type { Environment } from '../config/settings-file.ts'
import { isForwardable } from '../gateway/targets.ts'
import { tokenPathTest } from '../gateway/token-paths.ts'
import { pathOf } from '../http1/target.ts'
import { type OrgId, parseOrgId } from '../org-id.ts'
import { Asker, BUDGET, type Clock } from '../probe/asker.ts'
import { Questions, type Task } from '../probe/questions.ts'
import {
  hasToken,
  notesFrom,
  type Report,
  renderPage,
  renderYaml,
  settingsFrom,
  switchesFrom,
} from '../probe/report.ts'
import { revealHeaders, Secret } from '../secret.ts'
import { AppKey } from '../token/app-key.ts'
import { closedPath, endpointText, endpointUrl, tokenRequest } from '../token/token-request.ts'
import { readVersion, USER_AGENT } from '../version.ts'

const DEFAULT_HEADER = 'authorization: Bearer {token}'
const DEFAULT_PATH = '/v2/example/endpoint'

export interface ProbeCommand {
  readonly file?: string | undefined
  readonly org?: string | undefined
  readonly path?: string | undefined
  /** A duration, as settings have it. */
  readonly wait?: string | undefined
  readonly yaml?: boolean | undefined
  readonly json?: boolean | undefined
  readonly yes?: boolean | undefined
}

export interface Terminal {
  readonly print: (text: string) => unknown
  readonly tell: (text: string) => unknown
  /** Undefined if nobody can answer. */
  readonly confirm: (() => Promise<boolean>) | undefined
  /** Interrupts the probe, which prints what was found. */
  readonly signal: AbortSignal
}

/** Resolves with the exit code: 0 if the endpoint gave a token. @throws {ConfigRefused} */
export async function probe(
  command: ProbeCommand,
  env: Environment,
  terminal: Terminal = onTerminal(),
  clock: Clock = { now, sleep },
): Promise<0 | 1> {
  const { config } = await loadConfig({ file: command.file, env })
  const { app } = config
  if (app === undefined)
    throw new Error('a sidecar of a minter (minter.url) has no credentials: run probe at the minter')
  const path = pathToGet(command.path ?? DEFAULT_PATH, config)
  const org = orgToAsk(command.org ?? '', config)
  const waitMs = command.wait === undefined ? 0 : parseWait(command.wait)
  const url = endpointText({ baseUrl: config.baseUrl, endpoint: config.tokens.endpoint })
  const { origin, pathname } = config.baseUrl
  terminal.tell(
    `This sends at most ${BUDGET.mints} mints (${url}) and ${BUDGET.gets} GETs (${origin}${pathname.replace(/\/+$/, '')}${path})\n` +
      `with tokens of the Org ${org}. A new token may end the ones that others use. It also asks once for a made-up Org.\n`,
  )
  if (command.yes !== true) {
    if (terminal.confirm === undefined) throw new Error('there is no terminal to ask: give --yes')
    if (!(await terminal.confirm())) return 1
  }
  const unknownOrg = parseOrgId(`probe-${randomBytes(8).toString('hex')}`, config.orgs.pattern)
  const report = await ask(config, app, path, { org, unknownOrg, waitMs, url }, terminal.signal, clock)
  if (terminal.signal.aborted) terminal.tell('interrupted: this is what was found\n')
  if (command.json === true) terminal.print(`${JSON.stringify(report, null, 2)}\n`)
  else terminal.print(command.yaml === true ? renderYaml(report) : renderPage(report))
  return hasToken(report) ? 0 : 1
}

async function ask(
  config: Config,
  { appId, appSecret }: NonNullable<Config['app']>,
  path: string,
  task: Task,
  signal: AbortSignal,
  clock: Clock,
): Promise<Report> {
  const { baseUrl, tokens } = config
  const { endpoint, form, json, field, header } = tokens
  const startedAt = clock.now()
  const at = new Date().toISOString()
  const program = readVersion()
  const call = { baseUrl, endpoint, form, json, secretHeaders: tokens.secretHeaders }
  const appKey = new AppKey(appId, appSecret, tokens)
  const mintRequest = async (org: OrgId) => {
    const id = config.orgs.ids?.get(org) ?? org
    return tokenRequest(call, id, await appKey.prove(endpointUrl(call, id)), USER_AGENT)
  }
  const live = LiveConnections.of(config)
  const timeoutMs = config.origin.connectTimeoutMs + tokens.mintTimeoutMs * 2
  const open = (to: 'service' | 'endpoint') =>
    openWire(to === 'service' ? openPool(config, 1, live.service) : openMintPool(config, 1, live), timeoutMs)
  const pair = Buffer.from(`${appId}:${appSecret.reveal()}`).toString('base64')
  const headers = Object.values({ ...config.origin.secretHeaders, ...tokens.secretHeaders })
  const secrets = [appSecret, new Secret(pair), ...headers.map(({ content }) => content)]
  const credentials = (token?: Secret) => [
    ...(token === undefined ? [] : [header.name, header.before + token.reveal() + header.after]),
    ...revealHeaders(config.origin.secretHeaders),
  ]
  const asked = { baseUrl, path, field, userAgent: USER_AGENT, mintRequest, credentials }
  const asker = new Asker({ ...asked, secrets, open, signal, clock })
  try {
    const questions = new Questions(asker, task)
    await questions.askAll()
    const { findings, facts } = questions
    const text = `${endpoint.method} ${endpoint.base?.origin ?? ''}${endpoint.path}`
    const header = `${tokens.header.name}: ${tokens.header.before}{token}${tokens.header.after}`
    return {
      ...{ program, at, baseUrl: baseUrl.href, endpoint: text, org: task.org, path },
      ...{ mints: asker.mints.length, gets: asker.gets.length, durationMs: clock.now() - startedAt },
      ...{
        findings,
        settings: settingsFrom(facts, text, declaration.shape.tokens.parse({ assertion: {} })),
        notes: notesFrom(facts),
      },
      // Its switches know no other host.
      sandbox: {
        ...switchesFrom(facts, `${endpoint.method} ${endpoint.path.split('?')[0]}`, task.org),
        ...(tokens.auth !== 'basic' && { tokenAuth: tokens.auth }),
        ...(form && { tokenForm: form }),
        ...(json && { tokenJson: json }),
        ...(header !== DEFAULT_HEADER && { tokenHeader: header }),
      },
    }
  } finally {
    asker.close()
  }
}

function parseWait(text: string): number {
  const { data, error } = declaration.shape.tokens.shape.mintTimeoutMs.safeParse(text)
  if (error !== undefined) throw new Error(`--wait ${error.issues[0]?.message}`)
  return data
}

function pathToGet(path: string, { baseUrl, tokens }: Config): string {
  if (!isForwardable(path)) throw new Error('--path is no path that the proxy would forward')
  if (tokenPathTest(closedPath({ baseUrl, endpoint: tokens.endpoint }))(pathOf(path)))
    throw new Error('--path is the token endpoint')
  return path
}

function orgToAsk(text: string, { orgs }: Config): OrgId {
  const org = parseOrgId(text, orgs.pattern)
  if (org === undefined) throw new Error('--org is not an org id (see orgs.pattern)')
  if (orgs.allow.length > 0 && !orgs.allow.includes(org)) throw new Error(`${org} is not in orgs.allow`)
  if (orgs.ids?.has(org) === false) throw new Error(`${org} is not in orgs.ids`)
  return org
}

function onTerminal(): Terminal {
  const { stdin, stderr } = process
  const interrupt = new AbortController()
  const confirm = async () => {
    const lines = createInterface({ input: stdin, output: stderr })
    const answer = await lines.question('Go on? [y/N] ').finally(() => lines.close())
    return /^y(?:es)?$/i.test(answer.trim())
  }
  // A second signal ends the program at once.
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => interrupt.abort())
  return {
    print: (text) => process.stdout.write(text),
    tell: (text) => stderr.write(text),
    confirm: stdin.isTTY && stderr.isTTY ? confirm : undefined,
    signal: interrupt.signal,
  }
}
