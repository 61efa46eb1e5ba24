/** Several files for one process: each is a whole configuration with listeners of its own, and all are refused together. */

import { parse } from 'node:path'
import type { ListenAddress } from '../listener/bind.ts'
import { type LoadedConfig, loadConfig, refusalOf } from './load.ts'
import { ConfigRefused, type Problem } from './problem.ts'
import { type SettingKey, settings } from './settings.ts'
import type { LoadOptions } from './settings-file.ts'

export interface Instance {
  /** The name of the file without its ending. Undefined for the only one. */
  readonly name: string | undefined
  readonly source: LoadOptions
  readonly loaded: LoadedConfig
}

/**
 * `files` if there are several; otherwise, `options` names the one.
 * @throws {ConfigRefused} With the problems of all files.
 */
export async function loadInstances(files: readonly string[], options: LoadOptions): Promise<readonly Instance[]> {
  if (files.length === 0) return [{ name: undefined, source: options, loaded: await loadConfig(options) }]
  const variables = settings.map(({ variable }) => variable).filter((variable) => options.env[variable])
  const env = Object.fromEntries(Object.entries(options.env).filter(([name]) => !variables.includes(name)))
  const problems: Problem[] = variables.map((variable) => {
    const isSecret = variable === 'OAP_APP_SECRET' // no file may hold it
    const [effect, remedy] = isSecret ? ['be the secret of', 'set appSecretFile in'] : ['hold for', 'write it into']
    return { at: variable, source: 'environment', message: `would ${effect} every file: ${remedy} each` }
  })
  const names = files.map((file) => parse(file).name)
  for (const [i, file] of files.entries()) {
    const first = names.indexOf(names[i] ?? '')
    if (first === i) continue
    const message = `has the name of ${files[first]}, and each line of the log has that name: rename one`
    problems.push({ at: '--config', source: file, message })
  }
  const instances: Instance[] = []
  const refused = new Set<string>()
  for (const [i, file] of files.entries()) {
    const source = { ...options, env, file, instances: files.length }
    const loaded = await loadConfig(source).catch(refusalOf)
    if (loaded instanceof ConfigRefused) {
      problems.push(...loaded.problems.map((problem) => namingFile(problem, file)))
      for (const path of loaded.files) refused.add(path)
    } else instances.push({ name: names[i], source, loaded })
  }
  problems.push(...sharedAddresses(instances))
  if (problems.length > 0) throw new ConfigRefused(problems, refused)
  return instances
}

/** Of what is in no file, the problem names no file, and may advise to use the environment. */
function namingFile({ at, source, message }: Problem, file: string): Problem {
  const isElsewhere = source === 'not set' || source === 'default'
  return {
    at,
    source: isElsewhere ? `${source} in ${file}` : source,
    message: message.replace(/, or (?:as|set) OAP_\w+$/, ''),
  }
}

interface Listening {
  readonly owner: Instance
  readonly at: string
  readonly source: string
  readonly address: ListenAddress
}

function sharedAddresses(instances: readonly Instance[]): Problem[] {
  const before: Listening[] = []
  return instances.flatMap((owner) => {
    const own = listeningOf(owner)
    const shared = own.flatMap(({ at, source, address }): Problem[] => {
      const other = before.find((each) => isSame(each.address, address))
      if (other === undefined) return []
      const message = `is where ${other.at} of ${other.owner.source.file} listens: give each file addresses of its own`
      return [namingFile({ at, source, message }, owner.source.file ?? '')]
    })
    before.push(...own)
    return shared
  })
}

function listeningOf(owner: Instance): Listening[] {
  const { config, given } = owner.loaded
  const sourceOf = (key: SettingKey) => given.get(key)?.source ?? ''
  const addresses = (['listen', 'minter', 'admin'] as const).flatMap((group): Listening[] => {
    const { address = 'off' } = config[group]
    return address === 'off' ? [] : [{ owner, at: `${group}.address`, source: sourceOf(`${group}.address`), address }]
  })
  const sockets = config.callers.flatMap((caller, i) =>
    (['socket', 'minterSocket'] as const).flatMap((kind): Listening[] => {
      const path = caller[kind]
      const at = `callers[${i}].${kind}`
      return path === undefined ? [] : [{ owner, at, source: sourceOf('callers'), address: { kind: 'unix', path } }]
    }),
  )
  return [...addresses, ...sockets]
}

function isSame(one: ListenAddress, other: ListenAddress): boolean {
  if (one.kind === 'unix' || other.kind === 'unix') {
    return one.kind === 'unix' && other.kind === 'unix' && one.path === other.path
  }
  if (one.port !== other.port || one.port === 0) return false
  const others = hostsAt(other)
  return (
    hostsAt(one).some((host) => others.includes(host) || isAnyFor(host, others)) || isAnyFor(other.host, hostsAt(one))
  )
}

const hostsAt = ({ host }: { readonly host: string }) => (host === 'localhost' ? ['127.0.0.1', '::1'] : [host])

/** `::` takes both families. */
function isAnyFor(any: string, hosts: readonly string[]): boolean {
  return any === '::' || (any === '0.0.0.0' && hosts.some((host) => host.includes('.') || host === '::'))
}
