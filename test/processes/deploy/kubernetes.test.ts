/**
 * The Kubernetes manifests: probes and confinement of the sidecar, its secret, and what the app does not get. No cluster is
 * needed. If kubectl is installed, the output of kustomize is tested, too.
 */

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { dirname } from 'node:path/posix'
import { describe, expect, test } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { loadConfig } from '../../../src/config/load.ts'
import { makeFolder } from '../../support/folder.ts'
import { lacks, programPath } from '../../support/programs.ts'
import { projectPath, readManifest, readProjectFile } from '../../support/project-files.ts'
import { startProxyProcess } from '../../support/proxy-process.ts'
import { startService } from '../../support/service.ts'

/** A part of a manifest. If a path into it leads nowhere, the test that follows it fails. */
// biome-ignore lint/suspicious/noExplicitAny: the types of all these manifests would be longer than their tests
type Yaml = any

const BASE = 'deploy/kubernetes/base'
/** Kubernetes reads YAML 1.1, in which 0440 is octal. */
const yaml11 = { version: '1.1' } as const
const pod: Yaml = parse(readProjectFile(`${BASE}/deployment.yaml`), yaml11).spec.template.spec
const [sidecar] = pod.initContainers
const [app] = pod.containers

async function config() {
  const { config } = await loadConfig({ file: projectPath(`${BASE}/proxy.yaml`), env: { OAP_APP_SECRET_FILE: KEY } })
  return config
}
const KEY = projectPath('config/sandbox.secret')

describe('the sidecar', () => {
  test('is native: starts before the app, and stops after it', () => {
    expect(sidecar.restartPolicy).toBe('Always')
    expect(pod.containers.map(({ name }: Yaml) => name)).toEqual(['app'])
  })

  test('has a valid configuration', async () => {
    const mount = sidecar.volumeMounts.find(({ name }: Yaml) => name === 'proxy-config')
    expect(sidecar.args).toEqual(['serve', '--config', `${mount.mountPath}/proxy.yaml`])
    expect((await config()).listen.address).toMatchObject({ host: 'localhost', port: 8080 })
    expect(app.env).toEqual([{ name: 'PROXY_URL', value: 'http://localhost:8080' }])
  })

  test('answers probes from outside the pod, on its admin listener', async () => {
    const { admin } = await config()
    expect(admin).toEqual({ address: { kind: 'tcp', host: '::', port: 9090 }, allowRemote: false, quit: false })
    expect(sidecar.ports).toEqual([{ name: 'oap-admin', containerPort: 9090 }])
    const probes = [sidecar.startupProbe, sidecar.readinessProbe, sidecar.livenessProbe]
    expect(probes.map(({ httpGet }) => httpGet)).toEqual([
      { path: '/livez', port: 'oap-admin' },
      { path: '/readyz', port: 'oap-admin' },
      { path: '/livez', port: 'oap-admin' },
    ])
  })
})

describe('the secret', () => {
  const file: string = parse(readProjectFile(`${BASE}/proxy.yaml`)).appSecretFile
  const volume = pod.volumes.find(({ secret }: Yaml) => secret !== undefined)

  test('is mounted as a directory, so that a rotation arrives', () => {
    const mount = sidecar.volumeMounts.find(({ name }: Yaml) => name === volume.name)
    expect(mount).toEqual({ name: volume.name, mountPath: dirname(file), readOnly: true })
    expect(volume.secret?.defaultMode).toBe(0o440)
  })

  test('is not mounted into the app', () => {
    expect(app.volumeMounts).toBeUndefined()
    expect(pod.automountServiceAccountToken).toBe(false)
  })
})

test('everything in the pod fits the restricted profile', () => {
  expect(pod.securityContext).toMatchObject({
    runAsNonRoot: true,
    seccompProfile: { type: 'RuntimeDefault' },
  })
  for (const { securityContext } of [sidecar, app]) {
    expect(securityContext).toEqual({
      runAsUser: expect.toSatisfy((uid: number) => uid > 0),
      runAsGroup: securityContext.runAsUser,
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    })
  }
})

test('the app is another user than the proxy: one of the same user may read its memory', () => {
  expect(pod.securityContext).not.toHaveProperty('runAsUser')
  expect(app.securityContext.runAsUser).not.toBe(sidecar.securityContext.runAsUser)
  expect(pod.securityContext.fsGroup).toBe(sidecar.securityContext.runAsGroup)
})

test('a stop gets enough time', async () => {
  const { shutdown } = await config()
  expect(pod.terminationGracePeriodSeconds * 1_000).toBeGreaterThan(shutdown.delayMs + shutdown.timeoutMs)
})

test('the image is that of this version', () => {
  const { images } = parse(readProjectFile(`${BASE}/kustomization.yaml`))
  expect(images).toEqual([expect.objectContaining({ name: sidecar.image, newTag: readManifest().version })])
})

describe('the Job, with the proxy as a plain container', () => {
  const JOB = 'deploy/kubernetes/job'
  const { spec }: Yaml = parse(readProjectFile(`${JOB}/job.yaml`), yaml11).spec.template
  const [proxy, worker] = spec.containers

  test('is the pod of the base in all that is not the way it ends', async () => {
    const { config: job } = await loadConfig({
      file: projectPath(`${JOB}/proxy.yaml`),
      env: { OAP_APP_SECRET_FILE: KEY },
    })
    expect(job.admin).toMatchObject({ address: { host: 'localhost', port: 9090 }, quit: true })
    expect([spec.restartPolicy, spec.initContainers]).toEqual(['Never', undefined])
    const { volumes, securityContext } = pod
    expect(spec).toMatchObject({ volumes, securityContext, automountServiceAccountToken: false })
    const same = ({ args, image, resources, securityContext: user, volumeMounts }: Yaml) => ({
      args,
      image,
      resources,
      user,
      volumeMounts,
    })
    expect(same(proxy)).toEqual(same(sidecar))
    expect(worker.securityContext).toEqual(app.securityContext)
  })

  test('both containers end when the work is done, and the app says whether it went well', async () => {
    for (const status of [200, 500]) {
      await using service = await startService({ script: () => ({ status }) })
      await using running = await startProxyProcess(service, { settings: { 'admin.quit': 'true' } })
      const [, ...args] = [...worker.command, ...worker.args]
      const { PATH = '' } = process.env
      const ports = { PROXY_URL: running.port, PROXY_ADMIN_URL: running.adminPort }
      expect(worker.env.map(({ name }: Yaml) => name)).toEqual(Object.keys(ports))
      const env = Object.fromEntries(Object.entries(ports).map(([name, port]) => [name, `http://localhost:${port}`]))
      const worked = await once(spawn(process.execPath, args, { env: { PATH, ...env }, stdio: 'ignore' }), 'exit')
      expect(worked).toEqual([status === 200 ? 0 : 1, null])
      expect(await running.spawned.exited).toEqual({ code: 0, signal: null })
    }
  })
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
    const operations: Yaml = parse(patches[0].patch, yaml11)
    const [mount, volume] = operations
    expect(mount).toMatchObject({
      path: '/spec/template/spec/initContainers/0/volumeMounts/-',
      value: { name: 'store-password', mountPath: dirname(parse(text).fleet.passwordFile), readOnly: true },
    })
    expect(mount.value).not.toHaveProperty('subPath')
    expect(volume).toEqual({
      op: 'add',
      path: '/spec/template/spec/volumes/-',
      value: { name: 'store-password', secret: { secretName: 'org-access-proxy-store', defaultMode: 0o440 } },
    })
    expect(operations).toHaveLength(2)
  })
})

const SHARED = 'deploy/kubernetes/shared'

describe('the shared gateway', async () => {
  const manifests = ['gateway.yaml', 'caller.yaml'].flatMap((name): Yaml[] =>
    parseAllDocuments(readProjectFile(`${SHARED}/${name}`), yaml11).map((document) => document.toJS()),
  )
  const find = (kind: string, name: string): Yaml =>
    manifests.find((manifest) => manifest.kind === kind && manifest.metadata.name === name)
  const proxyPod = find('Deployment', 'org-access-proxy').spec.template.spec
  const caller = find('Deployment', 'billing').spec.template
  const [container] = caller.spec.containers

  /** Its configuration, with the paths of a pod replaced by ones that exist here. */
  async function load(file: string) {
    const certificates = projectPath('test/support/certificates')
    const text = readProjectFile(file)
      .replace(/appSecretFile: .*/, `appSecretFile: ${KEY}`)
      .replace(/jwksCaFile: .*/g, `jwksCaFile: ${certificates}/ca.pem`)
      .replace('/run/tls/tls.crt', `${certificates}/localhost.pem`)
      .replace('/run/tls/tls.key', `${certificates}/key.pem`)
      .replace('/run/tls/ca.crt', `${certificates}/ca.pem`)
    await using folder = await makeFolder()
    return await loadConfig({ file: await folder.write('proxy.yaml', text), env: {} })
  }
  const { config, warnings } = await load(`${SHARED}/proxy.yaml`)

  test('has a valid configuration, with one warning about who may connect: it wants an encrypted network', () => {
    expect(config.callers.map(({ name }) => name)).toEqual(['billing', 'reports'])
    const found = warnings.filter((line) => /listen\.address|callers/.test(line))
    expect(found).toEqual([expect.stringContaining('in the clear')])
    const [{ args, ports }] = proxyPod.containers
    expect(args).toEqual(['serve', '--config', '/etc/org-access-proxy/proxy.yaml'])
    const { address } = config.listen
    expect(ports).toContainEqual({
      name: 'proxy',
      containerPort: address !== 'off' && address.kind === 'tcp' && address.port,
    })
  })

  test('over TLS, has a valid configuration, without a warning about credentials in the clear', async () => {
    const { config, warnings } = await load(`${SHARED}-tls/base/proxy.yaml`)
    expect(config.callers[0]?.certificate).toBeDefined()
    expect(warnings.join('\n')).not.toMatch(/listen\.address|callers/)
  })

  test('has its own token, to fetch the keys of the cluster', () => {
    expect(proxyPod.automountServiceAccountToken).not.toBe(false)
    expect(find('ServiceAccount', proxyPod.serviceAccountName)).toBeDefined()
    for (const line of readProjectFile(`${SHARED}/proxy.yaml`).match(/jwks(Ca|Token)File: .*/g) ?? []) {
      expect(line).toContain('/var/run/secrets/kubernetes.io/serviceaccount/')
    }
  })

  test('the caller asks for a token of ten minutes, with the audience and subject of the configuration', () => {
    const token = caller.spec.volumes[0].projected.sources[0].serviceAccountToken
    const subject = `system:serviceaccount:default:${caller.spec.serviceAccountName}`
    const billing = config.callers.find(({ name }) => name === 'billing')
    expect(billing?.jwt).toMatchObject({ audience: token.audience, subject })
    expect(token.expirationSeconds).toBe(600)
    const file = container.env.find(({ name }: Yaml) => name === 'PROXY_TOKEN_FILE').value
    expect(file).toBe(`${container.volumeMounts[0].mountPath}/${token.path}`)
  })

  test('the caller calls the proxy by a name that is accepted in Host', () => {
    const url = new URL(container.env.find(({ name }: Yaml) => name === 'PROXY_URL').value)
    expect(config.listen.hosts).toContain(url.hostname)
    const { ports } = find('Service', url.hostname).spec
    expect(ports).toEqual([{ name: 'proxy', port: Number(url.port), targetPort: 'proxy' }])
  })

  test('stays reachable while the cluster still sends it connections, and has time to end', () => {
    const { delayMs, timeoutMs } = config.shutdown
    expect(delayMs).toBeGreaterThan(0)
    expect(proxyPod.terminationGracePeriodSeconds * 1_000).toBeGreaterThan(delayMs + timeoutMs)
  })

  test('lets in the pods that are marked as callers', () => {
    const [rule] = find('NetworkPolicy', 'org-access-proxy').spec.ingress
    expect(rule.ports).toEqual([{ port: 'proxy' }])
    expect(caller.metadata.labels).toMatchObject(rule.from[0].podSelector.matchLabels)
  })
})

/** What kustomize makes of a folder. */
function render(folder: string): Yaml[] {
  const { status, stdout, stderr } = spawnSync(programPath('kubectl'), ['kustomize', projectPath(folder)], {
    encoding: 'utf8',
  })
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
  return parseAllDocuments(stdout, yaml11).map((document) => document.toJS())
}

describe.skipIf(lacks('kubectl'))('what kustomize makes of them', () => {
  test('the base contains its configuration, under a name that changes with it', () => {
    const [configMap, deployment] = render(BASE)
    expect(configMap.data['proxy.yaml']).toBe(readProjectFile(`${BASE}/proxy.yaml`))
    const { volumes } = deployment.spec.template.spec
    expect(volumes.find((volume: Yaml) => volume.configMap !== undefined).configMap.name).toBe(configMap.metadata.name)
    expect(configMap.metadata.name).toMatch(/^org-access-proxy-\w+$/)
  })

  test('the fleet has more replicas, with the store and its password', () => {
    const [configMap, deployment] = render('deploy/kubernetes/fleet')
    const { spec } = deployment.spec.template
    expect(configMap.data['proxy.yaml']).toBe(readProjectFile('deploy/kubernetes/fleet/proxy.yaml'))
    expect(spec.initContainers[0].volumeMounts.map(({ name }: Yaml) => name)).toContain('store-password')
    expect(spec.volumes.find(({ name }: Yaml) => name === 'store-password').secret.defaultMode).toBe(0o440)
    expect(spec.containers.flatMap(({ volumeMounts }: Yaml) => volumeMounts ?? [])).toEqual([])
  })

  test('in the shared gateway, the ConfigMap keeps its name', () => {
    const made = render(SHARED)
    expect(made.find(({ kind }) => kind === 'ConfigMap').metadata.name).toBe('org-access-proxy')
  })

  test.each(['cert-manager', 'spiffe'])(
    'with %s, proxy and caller of the gateway over TLS have certificates',
    (name) => {
      const made = render(`${SHARED}-tls/${name}`)
      for (const deployment of ['org-access-proxy', 'billing']) {
        const { spec } = made.find(({ kind, metadata }) => kind === 'Deployment' && metadata.name === deployment)
        const { volumes, containers } = spec.template.spec
        expect(volumes.map((volume: Yaml) => volume.name)).toContain('tls')
        expect(containers[0].volumeMounts).toContainEqual({ name: 'tls', mountPath: '/run/tls', readOnly: true })
      }
      if (name === 'cert-manager') {
        const secrets = made.filter(({ kind }) => kind === 'Certificate').map(({ spec }) => spec.secretName)
        expect(secrets.toSorted()).toEqual(['billing-tls', 'org-access-proxy-ca', 'org-access-proxy-tls'])
      } else {
        const names = readProjectFile(`${SHARED}-tls/spiffe/helper.conf`).match(/(?<=_file_name = ").*(?=")/g)
        expect(names).toEqual(['tls.crt', 'tls.key', 'ca.crt'])
      }
    },
  )
})
