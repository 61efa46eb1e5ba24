/** The systemd unit: how the secret gets in, who the service runs as, and what ends it for good. */

import { spawnSync } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { loadConfig } from '../../src/config/load.ts'
import { parseDuration } from '../../src/config/units.ts'
import { projectPath, readProjectFile } from '../support/project-files.ts'
import { parseUnitFile } from './unit-file.ts'

const UNIT = 'deploy/systemd/org-access-proxy.service'
const service = parseUnitFile(readProjectFile(UNIT)).get('Service')
const only = (key: string): string | undefined => {
  const values = service?.get(key) ?? []
  return values.length === 1 ? values[0] : undefined
}

describe('the unit', () => {
  test('hands the secret over as a credential, which no other user and no child sees', () => {
    const [name, source] = (only('LoadCredential') ?? '').split(':')
    expect(source).toMatch(/^\/etc\//)
    expect(only('Environment')).toBe(`OAP_APP_SECRET_FILE=%d/${name}`)
  })

  test('runs as a user of its own, confined', () => {
    expect(only('DynamicUser')).toBe('yes')
    expect(only('CapabilityBoundingSet')).toBe('')
    expect(only('NoNewPrivileges')).toBe('yes')
    expect(only('ProtectSystem')).toBe('strict')
    expect(only('LimitCORE')).toBe('0')
  })

  test('lets V8 compile', () => {
    expect(service?.has('MemoryDenyWriteExecute')).toBe(false)
  })

  test('does not try a refused configuration again, and gives a stop its time', async () => {
    expect([only('Restart'), only('RestartPreventExitStatus')]).toEqual(['on-failure', '78'])
    const { config } = await loadConfig({ file: projectPath('deploy/systemd/config.yaml'), env: SECRET })
    expect(parseDuration(only('TimeoutStopSec') ?? '')).toBeGreaterThan(config.shutdown.delay + config.shutdown.timeout)
  })

  test('starts what is there, with the configuration beside it', () => {
    expect(only('ExecStart')).toMatch(/ \/opt\/org-access-proxy\/dist\/main\.js serve --config \S+\.yaml$/)
    expect(only('ExecReload')).toBe('/bin/kill -HUP $MAINPID')
  })
})

const SECRET = { OAP_APP_SECRET: 'only-for-this-test' }

const canVerify = spawnSync('systemd-analyze', ['--version']).status === 0

test.skipIf(!canVerify)('systemd itself has nothing to say against it', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'oap-unit-'))
  try {
    // It looks for the program that is started, and Node may stand elsewhere here.
    const unit = readProjectFile(UNIT).replace('/usr/bin/node', process.execPath)
    const path = join(folder, 'org-access-proxy.service')
    await writeFile(path, unit)
    const { status, stderr } = spawnSync('systemd-analyze', ['verify', '--man=no', path], { encoding: 'utf8' })
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
  } finally {
    await rm(folder, { recursive: true })
  }
})
