/** The compose file: its settings are valid, and only the promised addresses can be reached. */

import { existsSync } from 'node:fs'
import { expect, test } from 'vitest'
import { parse } from 'yaml'
import { loadConfig } from '../../../src/config/load.ts'
import { duration } from '../../../src/config/types.ts'
import { projectPath, readProjectFile } from '../../support/project-files.ts'

interface Service {
  readonly command: readonly string[]
  readonly depends_on: { readonly proxy: object }
  readonly environment: Readonly<Record<string, string>>
  readonly healthcheck: { readonly disable?: boolean; readonly test: readonly string[] }
  readonly network_mode: string
  readonly ports: readonly string[]
  readonly secrets: readonly string[]
  readonly stop_grace_period: string
  readonly volumes: readonly string[]
}
interface Compose<Name extends string> {
  readonly services: Readonly<Record<Name, Service>>
  readonly secrets: { readonly 'app-secret': { readonly file: string } }
}

const { services, secrets }: Compose<'proxy' | 'sandbox' | 'app'> = parse(readProjectFile('docker-compose.yml'), {
  merge: true,
})
const { proxy, sandbox, app } = services
const secretFile = secrets['app-secret'].file

test('the settings of the proxy are valid', async () => {
  const env = { ...proxy.environment, OAP_APP_SECRET_FILE: projectPath(secretFile) }
  const { config } = await loadConfig({ env })
  expect(config.listen.address).toEqual({ kind: 'tcp', host: 'localhost', port: 8080 })
  expect(app.environment).toEqual({ PROXY_URL: 'http://localhost:8080' })
  expect(config.baseUrl.port).toBe(sandbox.command.at(-1))
  expect(duration('0ms').parse(proxy.stop_grace_period)).toBeGreaterThan(
    config.shutdown.delayMs + config.shutdown.timeoutMs,
  )
})

test('the secret is a file, and only the proxy and the service have it', () => {
  expect(readProjectFile(secretFile)).toBe(readProjectFile('config/sandbox.secret'))
  const { OAP_APP_ID, OAP_APP_SECRET_FILE } = proxy.environment
  expect(OAP_APP_SECRET_FILE).toBe('/run/secrets/app-secret')
  expect(sandbox.environment).toEqual({ OAP_APP_ID, OAP_APP_SECRET_FILE })
  expect([proxy.secrets, sandbox.secrets, app.secrets]).toEqual([['app-secret'], ['app-secret'], undefined])
})

test("the app shares the proxy's network namespace, and only the status page can be reached from outside", () => {
  expect([app.network_mode, sandbox.network_mode]).toEqual(['service:proxy', 'service:proxy'])
  expect(proxy.ports).toEqual(['127.0.0.1:9090:9090'])
  expect([app.ports, sandbox.ports]).toEqual([undefined, undefined])
})

test('the app starts when the proxy is healthy', () => {
  expect(proxy.healthcheck.test).toEqual(['CMD', 'node', '/app/dist/main.js', 'healthcheck'])
  expect(sandbox.healthcheck.disable).toBe(true)
  expect(app.depends_on.proxy).toEqual({ condition: 'service_healthy' })
})

test.each(Object.entries(services))('%s has no rights on the machine', (_, service) => {
  expect(service).toMatchObject({
    read_only: true,
    cap_drop: ['ALL'],
    security_opt: ['no-new-privileges:true'],
    ulimits: { core: 0 },
  })
})

test('files of the project that it mounts are there', () => {
  const mounted = [...app.volumes.map((volume) => volume.split(':')[0] ?? ''), secretFile, './examples/call.js']
  expect(mounted.filter((path) => !existsSync(projectPath(path)))).toEqual([])
})

test('the settings of the second proxy of the fleet are valid, and the store has no other user', async () => {
  const fleet: Compose<'proxy' | 'second-proxy'> = parse(readProjectFile('deploy/compose/fleet.yaml'), { merge: true })
  const second = fleet.services['second-proxy']
  const passwordFile = projectPath('deploy/compose/store.password')
  const env = {
    ...second.environment,
    OAP_APP_SECRET_FILE: projectPath(secretFile),
    OAP_FLEET_PASSWORD_FILE: passwordFile,
  }
  const { config } = await loadConfig({ env })
  expect(config.fleet).toMatchObject({ store: { host: 'store', port: 6379 }, username: 'oap' })
  expect(Object.keys(fleet.services.proxy.environment)).toEqual(
    Object.keys(second.environment).filter((name) => name.startsWith('OAP_FLEET_')),
  )
  const users = readProjectFile('deploy/compose/store.users').trim().split('\n')
  expect(users[0]).toBe('user default off')
  expect(users[1]).toContain(`>${readProjectFile('deploy/compose/store.password').trim()} `)
  // The rule of docs/fleet.md. Another test shows that it is enough.
  expect(readProjectFile('docs/fleet.md')).toContain(users[1]?.split(' ').slice(4).join(' '))
})
