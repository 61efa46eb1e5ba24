/**
 * The Kubernetes manifests: probes and confinement of the sidecar, its secret, and what the app does not get. No cluster is
 * needed. If kubectl is installed, the output of kustomize is tested, too.
 */

import { spawnSync } from 'node:child_process'
import { dirname } from 'node:path/posix'
import { describe, expect, test } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { loadConfig } from '../../src/config/load.ts'
import { lacks, programPath } from '../support/programs.ts'
import { projectPath, readManifest, readProjectFile } from '../support/project-files.ts'

interface Container {
  readonly name: string
  readonly image: string
  readonly restartPolicy?: string
  readonly command?: readonly string[]
  readonly args?: readonly string[]
  readonly env?: readonly { readonly name: string; readonly value: string }[]
  readonly ports?: readonly { readonly name: string; readonly containerPort: number }[]
  readonly startupProbe?: Probe
  readonly readinessProbe?: Probe
  readonly livenessProbe?: Probe
  readonly securityContext?: object
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string; readonly subPath?: string }[]
}

interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string }
}

interface PodSpec {
  readonly terminationGracePeriodSeconds: number
  readonly automountServiceAccountToken: boolean
  readonly securityContext: object
  readonly initContainers?: readonly Container[]
  readonly containers: readonly Container[]
  readonly volumes: readonly {
    readonly name: string
    readonly secret?: { readonly secretName: string; readonly defaultMode: number }
    readonly configMap?: { readonly name: string }
  }[]
}

const BASE = 'deploy/kubernetes/base'
/** Kubernetes reads YAML 1.1, in which 0440 is octal. */
const yaml11 = { version: '1.1' } as const
const pod: PodSpec = parse(readProjectFile(`${BASE}/deployment.yaml`), yaml11).spec.template.spec
const sidecar = pod.initContainers?.[0]
const app = pod.containers[0]

async function config() {
  const { config } = await loadConfig({ file: projectPath(`${BASE}/proxy.yaml`), env: { OAP_APP_SECRET_FILE: KEY } })
  return config
}
const KEY = projectPath('config/sandbox.secret')

describe('the sidecar', () => {
  test('is native: starts before the app, and stops after it', () => {
    expect(sidecar?.restartPolicy).toBe('Always')
    expect(pod.containers.map(({ name }) => name)).toEqual(['app'])
  })

  test('has a valid configuration', async () => {
    const mount = sidecar?.volumeMounts?.find(({ name }) => name === 'proxy-config')
    expect(sidecar?.args).toEqual(['serve', '--config', `${mount?.mountPath}/proxy.yaml`])
    expect((await config()).listen.address).toMatchObject({ host: 'localhost', port: 8080 })
    expect(app?.env).toEqual([{ name: 'PROXY_URL', value: 'http://localhost:8080' }])
  })

  test('answers probes from outside the pod, on its admin listener', async () => {
    const { admin } = await config()
    expect(admin).toEqual({ address: { kind: 'tcp', host: '0.0.0.0', port: 9090 }, allowRemote: false })
    expect(sidecar?.ports).toEqual([{ name: 'oap-admin', containerPort: 9090 }])
    const probes = [sidecar?.startupProbe, sidecar?.readinessProbe, sidecar?.livenessProbe]
    expect(probes.map((probe) => probe?.httpGet)).toEqual([
      { path: '/livez', port: 'oap-admin' },
      { path: '/readyz', port: 'oap-admin' },
      { path: '/livez', port: 'oap-admin' },
    ])
  })
})

describe('the secret', () => {
  const file: string = parse(readProjectFile(`${BASE}/proxy.yaml`)).appSecretFile
  const volume = pod.volumes.find(({ secret }) => secret !== undefined)

  test('is mounted as a directory, so that a rotation arrives', () => {
    const mount = sidecar?.volumeMounts?.find(({ name }) => name === volume?.name)
    expect(mount).toEqual({ name: volume?.name, mountPath: dirname(file), readOnly: true })
    expect(volume?.secret?.defaultMode).toBe(0o440)
  })

  test('is not mounted into the app', () => {
    expect(app?.volumeMounts).toBeUndefined()
    expect(pod.automountServiceAccountToken).toBe(false)
  })
})

test('everything in the pod fits the restricted profile', () => {
  expect(pod.securityContext).toMatchObject({
    runAsNonRoot: true,
    runAsUser: expect.toSatisfy((uid: number) => uid > 0),
    seccompProfile: { type: 'RuntimeDefault' },
  })
  for (const container of [...(pod.initContainers ?? []), ...pod.containers]) {
    expect(container.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    })
  }
})

test('a stop gets enough time', async () => {
  const { shutdown } = await config()
  expect(pod.terminationGracePeriodSeconds * 1_000).toBeGreaterThan(shutdown.delay + shutdown.timeout)
})

test('the image is that of this version', () => {
  const { images } = parse(readProjectFile(`${BASE}/kustomization.yaml`))
  expect(images).toEqual([expect.objectContaining({ name: sidecar?.image, newTag: readManifest().version })])
})

describe('the fleet', () => {
  const FLEET = 'deploy/kubernetes/fleet'
  const { resources, configMapGenerator, patches, replicas } = parse(
    readProjectFile(`${FLEET}/kustomization.yaml`),
    yaml11,
  )
  const text = readProjectFile(`${FLEET}/proxy.yaml`)

  test('is the base, with more replicas and a valid configuration without a warning about the store', async () => {
    expect(resources).toEqual(['../base'])
    expect(configMapGenerator).toEqual([{ name: 'org-access-proxy', behavior: 'replace', files: ['proxy.yaml'] }])
    expect(replicas).toEqual([{ name: 'example-app', count: expect.toSatisfy((count: number) => count > 1) }])
    const env = { OAP_APP_SECRET_FILE: KEY, OAP_FLEET_PASSWORD_FILE: projectPath('deploy/compose/store.password') }
    const { config: fleet, warnings } = await loadConfig({ file: projectPath(`${FLEET}/proxy.yaml`), env })
    expect(fleet.fleet).toMatchObject({ store: { kind: 'tcp', tls: true }, username: 'oap' })
    expect(warnings.filter((warning) => warning.startsWith('fleet.store'))).toEqual([])
    const base = await config()
    expect({ ...fleet, fleet: base.fleet }).toEqual({ ...base, appSecret: fleet.appSecret })
  })

  test('mounts the password of the store as a directory, for the sidecar alone', () => {
    const operations: readonly { readonly path: string; readonly value: unknown }[] = parse(patches[0].patch, yaml11)
    const [mount, volume] = operations
    expect(mount).toMatchObject({
      path: '/spec/template/spec/initContainers/0/volumeMounts/-',
      value: { name: 'store-password', mountPath: dirname(parse(text).fleet.passwordFile), readOnly: true },
    })
    expect(mount?.value).not.toHaveProperty('subPath')
    expect(volume).toEqual({
      op: 'add',
      path: '/spec/template/spec/volumes/-',
      value: { name: 'store-password', secret: { secretName: 'org-access-proxy-store', defaultMode: 0o440 } },
    })
    expect(operations).toHaveLength(2)
  })
})

describe.skipIf(lacks('kubectl'))('what kustomize makes of them', () => {
  test('the base contains its configuration, under a name that changes with it', () => {
    const { configMap, spec } = render('deploy/kubernetes/base')
    expect(configMap.data['proxy.yaml']).toBe(readProjectFile(`${BASE}/proxy.yaml`))
    expect(spec.volumes.find((volume) => volume.configMap !== undefined)?.configMap?.name).toBe(configMap.metadata.name)
    expect(configMap.metadata.name).toMatch(/^org-access-proxy-\w+$/)
  })

  test('the fleet has more replicas, with the store and its password', () => {
    const { configMap, spec } = render('deploy/kubernetes/fleet')
    expect(configMap.data['proxy.yaml']).toBe(readProjectFile('deploy/kubernetes/fleet/proxy.yaml'))
    expect(spec.initContainers?.[0]?.volumeMounts?.map(({ name }) => name)).toContain('store-password')
    expect(spec.volumes.find(({ name }) => name === 'store-password')?.secret?.defaultMode).toBe(0o440)
    expect(spec.containers.flatMap(({ volumeMounts }) => volumeMounts ?? [])).toEqual([])
  })
})

interface ConfigMap {
  readonly metadata: { readonly name: string }
  readonly data: Readonly<Record<string, string>>
}

function render(folder: string): { configMap: ConfigMap; spec: PodSpec } {
  const { status, stdout, stderr } = spawnSync(programPath('kubectl'), ['kustomize', projectPath(folder)], {
    encoding: 'utf8',
  })
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
  const [configMap, deployment] = parseAllDocuments(stdout, yaml11).map((document) => document.toJS())
  return { configMap, spec: deployment.spec.template.spec }
}
