/**
 * The Kubernetes manifests: the configurations, probes and confinement of their proxies, their secrets, and what apps do not get.
 * No cluster is needed. If kubectl is installed, the output of kustomize is tested, too.
 */

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { cp } from 'node:fs/promises'
import { dirname } from 'node:path/posix'
import { describe, expect, test } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { parseArguments } from '../../../src/cli/arguments.ts'
import { loadInstances } from '../../../src/config/instances.ts'
import { loadConfig } from '../../../src/config/load.ts'
import { makeFolder } from '../../support/folder.ts'
import { lacks, programPath } from '../../support/programs.ts'
import { projectFilesBelow, projectPath, readManifest, readProjectFile } from '../../support/project-files.ts'
import { startProxyProcess } from '../../support/proxy-process.ts'
import { startService } from '../../support/service.ts'

/** A part of a manifest. If a path into it leads nowhere, the test that follows it fails. */
// biome-ignore lint/suspicious/noExplicitAny: the types of all these manifests would be longer than their tests
type Yaml = any

const FOLDER = 'deploy/kubernetes'
const readFile = (path: string) => readProjectFile(`${FOLDER}/${path}`)
/** Kubernetes reads YAML 1.1, in which 0440 is octal. */
const documentsOf = (text: string): Yaml[] =>
  parseAllDocuments(text, { version: '1.1' }).map((document) => document.toJS())
const find = (among: Yaml[], kind: string, name: string): Yaml =>
  among.find((manifest) => manifest.kind === kind && manifest.metadata.name === name)

const base = documentsOf(readFile('base/deployment.yaml'))
const job = documentsOf(readFile('job/job.yaml'))
const shared = ['gateway', 'caller/caller'].flatMap((name) => documentsOf(readFile(`shared/${name}.yaml`)))
const minter = ['minter', 'app'].flatMap((name) => documentsOf(readFile(`minter/${name}.yaml`)))
const podIn = (among: Yaml[], name: string): Yaml => {
  const { spec } = among.find(({ kind, metadata }) => /Deployment|Job/.test(kind) && metadata.name === name)
  return spec.template.spec
}
const containersOf = (pod: Yaml): Yaml[] => [...(pod.initContainers ?? []), ...pod.containers]

/** A configuration, with the paths of a pod replaced by ones that exist here. */
async function load(path: string, env: Record<string, string> = {}) {
  const certificates = projectPath('test/support/certificates')
  await using folder = await makeFolder()
  const jwt = await folder.write('token', 'eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl')
  const text = readFile(path)
    .replace(/(appSecretFile|passwordFile): .*/g, `$1: ${projectPath('config/sandbox.secret')}`)
    .replace(/jwksCaFile: .*/g, `jwksCaFile: ${certificates}/ca.pem`)
    .replace(/(jwtFile|assertionFile): .*/, `$1: ${jwt}`)
    .replaceAll('/run/tls/tls.crt', `${certificates}/localhost.pem`)
    .replaceAll('/run/tls/tls.key', `${certificates}/key.pem`)
    .replaceAll('/run/tls/ca.crt', `${certificates}/ca.pem`)
  const { config, warnings } = await loadConfig({ file: await folder.write('proxy.yaml', text), env })
  return { config, risks: warnings.filter((line) => /listen\.address|callers|minter\.address|fleet\.store/.test(line)) }
}

test.each(projectFilesBelow(FOLDER, 'proxy.yaml').map((path) => path.slice(FOLDER.length + 1)))(
  'the configuration %s is valid, and has no risk but that of a network that should encrypt',
  async (path) => {
    const { risks } = await load(path)
    const expected = path === 'shared/proxy.yaml' ? [expect.stringContaining('in the clear')] : []
    expect(risks).toEqual(expected)
  },
)

test.each(projectFilesBelow(FOLDER, 'kustomization.yaml'))('%s names the image of this version', (path) => {
  const { images = [] } = parse(readProjectFile(path))
  const expected = { name: 'org-access-proxy', newTag: readManifest().version }
  for (const image of images) expect(image).toMatchObject(expected)
})

describe.each([
  { name: 'the base', pod: podIn(base, 'example-app'), file: 'base/proxy.yaml' },
  { name: 'the Job', pod: podIn(job, 'example-job'), file: 'job/proxy.yaml' },
  { name: 'the shared gateway', pod: podIn(shared, 'org-access-proxy'), file: 'shared/proxy.yaml' },
  { name: 'the minter', pod: podIn(minter, 'minter'), file: 'minter/minter-proxy.yaml' },
  { name: 'the sidecar of a minter', pod: podIn(minter, 'billing'), file: 'minter/sidecar-proxy.yaml' },
])('the pod of $name', ({ pod, file }) => {
  const proxy = containersOf(pod).find(({ image }) => image === 'org-access-proxy')
  const apps = containersOf(pod).filter((container) => container !== proxy)

  test('fits the restricted profile', () => {
    expect(pod.securityContext).toMatchObject({ runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } })
    for (const { securityContext } of containersOf(pod)) {
      expect(securityContext).toMatchObject({
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'] },
      })
    }
  })

  test('runs the proxy as a user of its own: one of the same may read its memory', () => {
    const user = proxy.securityContext.runAsUser ?? pod.securityContext.runAsUser
    expect([user > 0, pod.securityContext.fsGroup]).toEqual([true, user])
    for (const { securityContext, volumeMounts } of apps) {
      expect([securityContext.runAsUser > 0, securityContext.runAsUser === user]).toEqual([true, false])
      expect([volumeMounts, pod.automountServiceAccountToken]).toEqual([undefined, false])
    }
  })

  test('mounts its configuration and each file of it, as directories, so that a rotation arrives', () => {
    const mounts: Yaml[] = proxy.volumeMounts
    const mounted = mounts.map(({ mountPath }) => mountPath)
    const ofCluster = '/var/run/secrets/kubernetes.io/serviceaccount'
    const files = [...readFile(file).matchAll(/File: (\S+)/g)].map(([, path = '']) => dirname(path))
    expect([...mounted, ofCluster]).toEqual(expect.arrayContaining(files))
    expect(files.includes(ofCluster) && pod.automountServiceAccountToken === false).toBe(false)
    expect(proxy.args).toEqual(['serve', '--config', '/etc/org-access-proxy/proxy.yaml'])
    expect(mounted).toContain('/etc/org-access-proxy')
    for (const mount of mounts) expect(mount).toEqual({ name: mount.name, mountPath: mount.mountPath, readOnly: true })
    for (const { secret } of pod.volumes) expect(secret?.defaultMode ?? 0o440).toBe(0o440)
  })

  test('is probed from outside on its admin listener, and has time for a stop', async () => {
    const { admin, listen, minter, shutdown } = (await load(file)).config
    expect(pod.terminationGracePeriodSeconds * 1_000).toBeGreaterThan(shutdown.delayMs + shutdown.timeoutMs)
    const ports = Object.entries({ minter: minter.address, proxy: listen.address, 'oap-admin': admin.address })
    const open = ports.flatMap(([name, address]) =>
      typeof address === 'object' && address.kind === 'tcp' && address.host === '::'
        ? [{ name, containerPort: address.port }]
        : [],
    )
    expect(proxy.ports ?? []).toEqual(open)
    if (proxy.ports === undefined) return
    const probes = [proxy.startupProbe, proxy.readinessProbe, proxy.livenessProbe]
    expect(probes.map(({ httpGet }) => [httpGet.path, httpGet.port])).toEqual([
      ['/livez', 'oap-admin'],
      ['/readyz', 'oap-admin'],
      ['/livez', 'oap-admin'],
    ])
  })
})

test('sidecars are native: they start before the app, and stop after it', () => {
  for (const pod of [podIn(base, 'example-app'), podIn(minter, 'billing')]) {
    expect(pod.initContainers.map(({ restartPolicy }: Yaml) => restartPolicy)).toEqual(['Always'])
    expect(pod.containers[0].env).toEqual([{ name: 'PROXY_URL', value: 'http://localhost:8080' }])
  }
})

describe('the Job, with the proxy as a plain container', () => {
  const pod = podIn(job, 'example-job')
  const [, worker] = pod.containers

  test('lets its app end the proxy, and is never restarted', async () => {
    const { admin } = (await load('job/proxy.yaml')).config
    expect(admin).toMatchObject({ address: { host: 'localhost', port: 9090 }, quit: true })
    expect([pod.restartPolicy, pod.initContainers]).toEqual(['Never', undefined])
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

test('the fleet is the base, with more replicas, the store, and its password for the sidecar alone', async () => {
  const [{ resources, patches, replicas }] = documentsOf(readFile('fleet/kustomization.yaml'))
  expect(resources).toEqual(['../base'])
  expect(replicas).toEqual([{ name: 'example-app', count: expect.toSatisfy((count: number) => count > 1) }])
  const [{ config }, { config: single }] = await Promise.all([load('fleet/proxy.yaml'), load('base/proxy.yaml')])
  expect(config.fleet).toMatchObject({ store: { kind: 'tcp', tls: true }, username: 'oap' })
  expect({ ...config, fleet: single.fleet }).toEqual(single)
  expect(documentsOf(patches[0].patch)).toEqual([
    [
      {
        op: 'add',
        path: '/spec/template/spec/initContainers/0/volumeMounts/-',
        value: { name: 'store-password', mountPath: '/run/secrets/store', readOnly: true },
      },
      {
        op: 'add',
        path: '/spec/template/spec/volumes/-',
        value: { name: 'store-password', secret: { secretName: 'org-access-proxy-store', defaultMode: 0o440 } },
      },
    ],
  ])
})

/** A token of ten minutes for a caller: its audience, its subject, and its file. */
function callerToken(pod: Yaml, mounts: Yaml[]) {
  const { name, projected } = pod.volumes.find((volume: Yaml) => volume.projected !== undefined)
  const { audience, path, expirationSeconds } = projected.sources[0].serviceAccountToken
  expect(expirationSeconds).toBe(600)
  const file = `${mounts.find((mount) => mount.name === name).mountPath}/${path}`
  return { claims: { audience, subject: `system:serviceaccount:default:${pod.serviceAccountName}` }, file }
}

describe('the shared gateway', async () => {
  const pod = podIn(shared, 'billing')
  const [container] = pod.containers
  const env = Object.fromEntries(container.env.map(({ name, value }: Yaml) => [name, value]))
  const { config } = await load('shared/proxy.yaml')

  test('knows its caller by the token of its pod', () => {
    const { claims, file } = callerToken(pod, container.volumeMounts)
    expect(config.callers.find(({ name }) => name === 'billing')?.jwt).toMatchObject(claims)
    expect(env['PROXY_TOKEN_FILE']).toBe(file)
    expect(find(shared, 'ServiceAccount', podIn(shared, 'org-access-proxy').serviceAccountName)).toBeDefined()
  })

  test('is called by a name that is accepted in Host, and lets in the pods that are marked as callers', async () => {
    const url = new URL(env['PROXY_URL'])
    const { value } = podIn(shared, 'org-access-proxy').containers[0].env.at(-1)
    const { listen } = (await load('shared/proxy.yaml', { OAP_LISTEN_HOSTS: value.replaceAll('$(NAMESPACE)', 'here') }))
      .config
    expect(listen.hosts).toEqual(['', '.here', '.here.svc', '.here.svc.cluster.local'].map((end) => url.hostname + end))
    const { ports } = find(shared, 'Service', url.hostname).spec
    expect(ports).toEqual([{ name: 'proxy', port: Number(url.port), targetPort: 'proxy' }])
    const [rule] = find(shared, 'NetworkPolicy', 'org-access-proxy').spec.ingress
    expect(rule.ports).toEqual([{ port: 'proxy' }])
    const { labels } = find(shared, 'Deployment', 'billing').spec.template.metadata
    for (const { podSelector } of rule.from) expect(labels).toMatchObject(podSelector.matchLabels)
    expect(rule.from[1].namespaceSelector.matchLabels).toEqual({ 'org-access-proxy/callers': 'true' })
  })

  test('stays reachable while the cluster still sends it connections', () => {
    expect(config.shutdown.delayMs).toBeGreaterThan(0)
  })
})

describe('the minter', () => {
  test.each([
    ['minter', 'jwt', 'jwtFile'],
    ['minter-certificates', 'certificate', 'certFile'],
  ] as const)('%s: minters for sidecars alone, and sidecars without the App', async (folder, credential, file) => {
    const { config: there } = await load(`${folder}/minter-proxy.yaml`)
    expect([there.listen.address, there.fleet.store?.tls]).toEqual(['off', true])
    expect(there.callers.map((caller) => credential in caller)).toEqual([true])
    const { config: here } = await load(`${folder}/sidecar-proxy.yaml`)
    expect([here.app, here.minter[file]]).toEqual([undefined, expect.anything()])
    const { hostname = '', port = '' } = here.minter.url?.baseUrl ?? {}
    const { ports } = find(minter, 'Service', hostname).spec
    expect(ports).toEqual([{ name: 'minter', port: Number(port), targetPort: 'minter' }])
  })

  const pod = podIn(minter, 'billing')

  test('alone mounts the App secret and the password of the store, and runs twice', () => {
    const secretsOf = ({ volumes }: Yaml) => volumes.flatMap(({ secret }: Yaml) => secret?.secretName ?? [])
    const secrets = ['org-access-proxy', 'org-access-proxy-store', 'minter-tls']
    expect([secretsOf(podIn(minter, 'minter')), secretsOf(pod)]).toEqual([secrets, []])
    expect(find(minter, 'Deployment', 'minter').spec.replicas).toBe(2)
  })

  test('knows the sidecar by the token of its pod, and lets in the pods that are marked as sidecars', async () => {
    const { claims, file } = callerToken(pod, pod.initContainers[0].volumeMounts)
    expect((await load('minter/minter-proxy.yaml')).config.callers[0]?.jwt).toMatchObject(claims)
    expect(parse(readFile('minter/sidecar-proxy.yaml')).minter.jwtFile).toBe(file)
    const [rule] = find(minter, 'NetworkPolicy', 'minter').spec.ingress
    expect(rule.ports).toEqual([{ port: 'minter' }])
    const { labels } = find(minter, 'Deployment', 'billing').spec.template.metadata
    for (const { podSelector } of rule.from) expect(labels).toMatchObject(podSelector.matchLabels)
    expect(rule.from[1].namespaceSelector.matchLabels).toEqual({ 'org-access-proxy/sidecars': 'true' })
  })
})

describe.skipIf(lacks('kubectl'))('what kustomize makes of them', () => {
  function render(folder: string, root = projectPath(FOLDER)): Yaml[] {
    const args = ['kustomize', `${root}/${folder}`]
    const { status, stdout, stderr } = spawnSync(programPath('kubectl'), args, { encoding: 'utf8' })
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
    return documentsOf(stdout)
  }

  test.each([
    ['base', 'org-access-proxy', 'proxy.yaml', true],
    ['fleet', 'org-access-proxy', 'proxy.yaml', true],
    ['federated', 'org-access-proxy', 'proxy.yaml', true],
    ['job', 'org-access-proxy', 'proxy.yaml', true],
    ['shared', 'org-access-proxy', 'proxy.yaml', false],
    ['minter', 'minter', 'minter-proxy.yaml', false],
    ['minter', 'billing-sidecar', 'sidecar-proxy.yaml', false],
    ['minter-certificates', 'minter', 'minter-proxy.yaml', false],
    ['minter-certificates', 'billing-sidecar', 'sidecar-proxy.yaml', false],
  ])('%s has the configuration %s of %s; under a name that changes with it: %s', (folder, name, file, changes) => {
    const made = render(folder)
    const { metadata, data } = made.find(({ kind, metadata }) => kind === 'ConfigMap' && metadata.name.startsWith(name))
    expect(data['proxy.yaml']).toBe(readFile(`${folder}/${file}`))
    expect(metadata.name !== name).toBe(changes)
    const pods = made.filter(({ kind }) => /Deployment|Job/.test(kind)).map(({ spec }) => spec.template.spec)
    const maps = pods.flatMap(({ volumes }) => volumes.map(({ configMap }: Yaml) => configMap?.name))
    expect(maps).toContain(metadata.name)
  })

  test.each([
    [
      'shared-tls/cert-manager',
      ['org-access-proxy', 'billing'],
      ['billing-tls', 'org-access-proxy-ca', 'org-access-proxy-tls'],
    ],
    ['shared-tls/spiffe', ['org-access-proxy', 'billing'], []],
    ['minter-certificates', ['minter', 'billing'], ['billing-tls', 'minter-ca', 'minter-tls']],
  ])('in %s, both ends have certificates', (folder, names, secrets) => {
    const made = render(folder)
    const issued = made.filter(({ kind }) => kind === 'Certificate').map(({ spec }) => spec.secretName)
    expect(issued.toSorted()).toEqual(secrets)
    for (const pod of names.map((name) => podIn(made, name))) {
      const { secret } = pod.volumes.find(({ name }: Yaml) => name === 'tls')
      if (secrets.length > 0) expect(secrets).toContain(secret.secretName)
      const mounts = containersOf(pod).flatMap(({ volumeMounts = [] }) => volumeMounts)
      expect(mounts).toContainEqual({ name: 'tls', mountPath: '/run/tls', readOnly: true })
      expect(JSON.stringify(pod)).not.toContain('serviceAccountToken')
      expect(pod.automountServiceAccountToken).toBe(false)
    }
  })

  test.each([
    ['shared', 'org-access-proxy'],
    ['shared-tls/cert-manager', 'org-access-proxy'],
    ['shared-tls/spiffe', 'org-access-proxy'],
    ['minter', 'minter'],
    ['minter-certificates', 'minter'],
  ])('in %s, one line sets the namespace of the proxy, its names and its certificates', async (folder, service) => {
    await using copy = await makeFolder()
    await cp(projectPath(FOLDER), copy.path, { recursive: true })
    const file = `${folder}/kustomization.yaml`
    await copy.write(file, readFile(file).replace('namespace: default', 'namespace: elsewhere'))
    const made = render(folder, copy.path)
    expect(new Set(made.map(({ metadata }) => metadata.namespace))).toEqual(new Set(['elsewhere']))
    const certificates = made.filter(({ kind, spec }) => kind === 'Certificate' && !spec.isCA)
    for (const { spec } of certificates) {
      const [, ...names] = spec.dnsNames ?? ['', ...spec.uris]
      for (const name of names)
        expect(name).toMatch(new RegExp(`^${service}\\.elsewhere(\\.svc|$)|/ns/elsewhere/sa/billing$`))
    }
    expect(certificates).toHaveLength(/cert/.test(folder) ? 2 : 0)
  })

  // TypeScript refuses a field that the type of a literal does not have. Of the kinds of other makers, there are no types.
  test('all have fields that the API of Kubernetes declares, and no others', { timeout: 60_000 }, async () => {
    const wrong = structuredClone(find(base, 'Deployment', 'example-app'))
    wrong.spec.template.spec.containers[0].volumeMount = []
    const folders = projectFilesBelow(FOLDER, 'kustomization.yaml').map((path) => dirname(path))
    const made = folders.flatMap((folder) => render(folder.slice(FOLDER.length + 1)))
    const all = [...made.filter(({ apiVersion }) => !apiVersion.startsWith('cert-manager')), wrong]
    await using folder = await makeFolder()
    for (const [index, manifest] of all.entries()) {
      const { apiVersion, kind } = manifest
      const [group, version] = apiVersion === 'v1' ? ['core', 'v1'] : apiVersion.split(/[./].*\/|\//)
      const types = projectPath(`node_modules/kubernetes-types/${group}/${version}.d.ts`)
      const text = `export default ${JSON.stringify(manifest)} satisfies import('${types}').${kind}`
      await folder.write(`${index}.ts`, text)
    }
    const compiler = projectPath('node_modules/typescript/bin/tsc')
    const options = ['--noEmit', '--strict', '--skipLibCheck', '--types', '', '--module', 'nodenext']
    const args = [compiler, ...options, ...all.map((_, index) => `${index}.ts`)]
    const { stdout } = spawnSync(process.execPath, args, { cwd: folder.path, encoding: 'utf8' })
    const told = stdout.split('\n').filter((line) => line !== '')
    expect(told).toEqual([
      expect.stringMatching(`^${all.length - 1}.ts.*volumeMount.* does not exist in type 'Container'`),
    ])
  })

  test('with a federated credential, the sidecar alone has the token, and nobody a secret', async () => {
    const made = render('federated')
    const pod = podIn(made, 'example-app')
    expect(JSON.stringify(made)).not.toContain('secretName')
    expect(find(made, 'ServiceAccount', pod.serviceAccountName).automountServiceAccountToken).toBe(false)
    const [proxy, app] = containersOf(pod)
    const { mountPath, ...mount } = proxy.volumeMounts[1]
    expect([mount, app.volumeMounts]).toEqual([{ name: 'federated-token', readOnly: true }, undefined])
    const { projected } = pod.volumes.find(({ name }: Yaml) => name === mount.name)
    const { path, audience } = projected.sources[0].serviceAccountToken
    expect([projected.defaultMode, audience]).toEqual([0o440, 'api://AzureADTokenExchange'])
    const example = parse(readProjectFile('examples/services/entra-federated.yaml'))
    expect(parse(readFile('federated/proxy.yaml'))).toMatchObject(example)
    expect(example.tokens.assertionFile).toBe(`${mountPath}/${path}`)
  })

  test('with several services, one sidecar has a file and a Secret for each, which exist and share no address', async () => {
    const made = render('services')
    const pod = podIn(made, 'example-app')
    const [proxy, app] = containersOf(pod)
    const { data } = made.find(({ kind }) => kind === 'ConfigMap')
    await using folder = await makeFolder()
    const secret = await folder.write('secret', 'only-for-this-test')
    const write = (path: string) => {
      const text: string = data[path.replace('/etc/org-access-proxy/', '')]
      const [, mounted = ''] = /appSecretFile: (\S+)\/app-secret/.exec(text) ?? []
      expect(proxy.volumeMounts.map(({ mountPath }: Yaml) => mountPath)).toContain(mounted)
      return folder.write(path.replaceAll('/', '-'), text.replace(/appSecretFile: .*/, `appSecretFile: ${secret}`))
    }
    const { files = [] } = parseArguments(proxy.args)
    const instances = await loadInstances(await Promise.all(files.map(write)), { env: {} })
    const ports = instances.map(({ loaded: { config } }) => [config.listen.address, config.admin.address])
    expect(ports.flat()).toMatchObject([{ port: 8080 }, { port: 9090 }, { port: 8081 }, { port: 9091 }])
    expect(proxy.ports.map(({ containerPort }: Yaml) => containerPort)).toEqual([9090, 9091])
    expect(app.env.map(({ value }: Yaml) => value)).toEqual(['http://localhost:8080', 'http://localhost:8081'])
    const mounts: Yaml[] = proxy.volumeMounts
    const secrets = pod.volumes.filter(({ name }: Yaml) => mounts.some((mount) => mount.name === name)).slice(1)
    expect(secrets.map((volume: Yaml) => volume.secret)).toEqual(
      ['github', 'entra'].map((name) => ({ secretName: `org-access-proxy-${name}`, defaultMode: 0o440 })),
    )
  })

  test('the helper of SPIFFE writes the files that the configuration names', () => {
    const names = readFile('shared-tls/spiffe/helper.conf').match(/(?<=_file_name = ").*(?=")/g)
    expect(names).toEqual(['tls.crt', 'tls.key', 'ca.crt'])
  })
})
