/** The systemd unit: its credential, its user, its confinement, and its restarts. */

import { spawnSync } from 'node:child_process'
import { describe, expect, test } from 'vitest'
import { parseArguments } from '../../../src/cli/arguments.ts'
import { loadConfig } from '../../../src/config/load.ts'
import { duration } from '../../../src/config/types.ts'
import { makeFolder } from '../../support/folder.ts'
import { lacks, programPath } from '../../support/programs.ts'
import { projectPath, readProjectFile } from '../../support/project-files.ts'
import { START_ARGS } from '../../support/spawn-proxy.ts'

/** Every assignment of each key in a section of a unit file. */
function sectionOf(text: string, section: string): ReadonlyMap<string, readonly string[]> {
  const keys = new Map<string, string[]>()
  const [, inside = ''] = text.split(`[${section}]\n`)
  for (const [, key = '', value = ''] of (inside.split('\n[')[0] ?? '').matchAll(/^(\w+)=(.*)$/gm)) {
    keys.set(key, [...(keys.get(key) ?? []), value])
  }
  return keys
}

const UNIT = 'deploy/systemd/org-access-proxy.service'
const service = sectionOf(readProjectFile(UNIT), 'Service')
const only = (key: string): string | undefined => {
  const values = service.get(key) ?? []
  return values.length === 1 ? values[0] : undefined
}

describe('the unit', () => {
  test('passes the secret as a credential, which no other user and no child can see', () => {
    const [name, source] = (only('LoadCredential') ?? '').split(':')
    expect(source).toMatch(/^\/etc\//)
    expect(service.get('Environment')).toContain(`OAP_APP_SECRET_FILE=%d/${name}`)
  })

  test('its configuration names the file of the secret, so that root can check it', async () => {
    const [, source = ''] = (only('LoadCredential') ?? '').split(':')
    await using folder = await makeFolder()
    const text = readProjectFile('deploy/systemd/config.yaml').replace(source, await folder.write('secret', 'a-secret'))
    const { given } = await loadConfig({ file: await folder.write('config.yaml', text), env: {} })
    expect(given.get('appSecretFile')?.source).toContain('config.yaml')
  })

  test('runs as a user of its own, confined', () => {
    expect(only('DynamicUser')).toBe('yes')
    expect(only('CapabilityBoundingSet')).toBe('')
    expect(only('NoNewPrivileges')).toBe('yes')
    expect(only('ProtectSystem')).toBe('strict')
    expect(only('LimitCORE')).toBe('0')
  })

  test('takes the message of the child that tells the end of the start', () => {
    expect([only('Type'), only('NotifyAccess'), only('ExecStartPost')]).toEqual(['notify', 'all', undefined])
  })

  test('lets V8 compile', () => {
    expect(service.has('MemoryDenyWriteExecute')).toBe(false)
  })

  test('does not restart after a refused configuration, and gives a stop enough time', async () => {
    expect([only('Restart'), only('RestartPreventExitStatus')]).toEqual(['on-failure', '78'])
    await using folder = await makeFolder()
    const env = { OAP_APP_SECRET_FILE: await folder.write('secret', 'only-for-this-test') }
    const { config } = await loadConfig({ file: projectPath('deploy/systemd/config.yaml'), env })
    expect(duration('0ms').parse(only('TimeoutStopSec') ?? '')).toBeGreaterThan(
      config.shutdown.delayMs + config.shutdown.timeoutMs,
    )
  })

  test('starts the program of the tarball, with its configuration', () => {
    const [node, ...args] = only('ExecStart')?.split(' ') ?? []
    expect(node).toMatch(/\/node$/)
    expect(args.slice(0, -1)).toEqual([...START_ARGS, '/opt/org-access-proxy/dist/main.js', 'serve', '--config'])
    expect(args.at(-1)).toMatch(/\.yaml$/)
    expect(only('ExecReload')).toBe('/bin/kill -HUP $MAINPID')
  })
})

test('several processes share the socket, and have admin listeners of their own', () => {
  const several = sectionOf(readProjectFile('deploy/systemd/several.service.conf'), 'Service')
  expect(several.get('Sockets')).toEqual(['org-access-proxy.socket'])
  expect(several.get('Environment')).toContainEqual('OAP_ADMIN_ADDRESS=localhost:909%i')
  expect(several.get('RuntimeDirectory')).toEqual(['', 'org-access-proxy-%i'])
})

test('one process for several services has a file and a credential for each, and no setting in the environment', () => {
  const services = sectionOf(readProjectFile('deploy/systemd/services.service.conf'), 'Service')
  const [reset, start = ''] = services.get('ExecStart') ?? []
  const [, ...args] = start.split(' ')
  const [several, one] = [args, only('ExecStart')?.split(' ').slice(1) ?? []].map((words) => words.slice(0, 3))
  expect([reset, several]).toEqual(['', one])
  const { name, files = [] } = parseArguments(args.slice(2))
  expect([name, files]).toEqual(['serve', ['/etc/org-access-proxy/github.yaml', '/etc/org-access-proxy/entra.yaml']])
  const credentials = ['github', 'entra'].map((each) => `${each}-secret:/etc/org-access-proxy/${each}-secret`)
  expect(services.get('LoadCredential')).toEqual(['', ...credentials])
  const kept = service.get('Environment')?.filter((assignment) => !assignment.startsWith('OAP_'))
  expect(services.get('Environment')).toEqual(['', ...(kept ?? [])])
})

test.skipIf(lacks('systemd-analyze'))('systemd-analyze accepts it', async () => {
  await using folder = await makeFolder()
  // systemd-analyze looks for the program that the unit starts. Node may be elsewhere on this machine.
  const unit = readProjectFile(UNIT).replace('/usr/bin/node', process.execPath)
  const path = await folder.write('org-access-proxy.service', unit)
  // It also reads the units that ours depends on. Their faults are not ours.
  const args = ['verify', '--man=no', '--recursive-errors=no', path]
  const { status, stderr } = spawnSync(programPath('systemd-analyze'), args, { encoding: 'utf8' })
  const complaints = stderr.split('\n').filter((line) => line.includes('org-access-proxy'))
  expect({ status, complaints }, stderr).toEqual({ status: 0, complaints: [] })
})
