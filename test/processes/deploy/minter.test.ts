/** The manifests of minters and their sidecars: configurations, credentials, and what no sidecar gets. */

import { spawnSync } from 'node:child_process'
import { dirname } from 'node:path/posix'
import { describe, expect, test } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { loadConfig } from '../../../src/config/load.ts'
import { makeFolder } from '../../support/folder.ts'
import { lacks, programPath } from '../../support/programs.ts'
import { projectPath, readManifest, readProjectFile } from '../../support/project-files.ts'

// biome-ignore lint/suspicious/noExplicitAny: the types of all these manifests would be longer than their tests
type Yaml = any

const FOLDER = 'deploy/kubernetes/minter'
const yaml11 = { version: '1.1' } as const
const manifests = ['minter.yaml', 'app.yaml'].flatMap((name): Yaml[] =>
  parseAllDocuments(readProjectFile(`${FOLDER}/${name}`), yaml11).map((document) => document.toJS()),
)
const find = (kind: string, name: string, among: Yaml[] = manifests): Yaml =>
  among.find((manifest) => manifest.kind === kind && manifest.metadata.name === name)

/** A configuration, with the paths of a pod replaced by ones that exist here. */
async function load(file: string) {
  const certificates = projectPath('test/support/certificates')
  const secret = projectPath('config/sandbox.secret')
  await using folder = await makeFolder()
  const jwt = await folder.write('token', 'eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl')
  const text = readProjectFile(file)
    .replace(/(appSecretFile|passwordFile): .*/g, `$1: ${secret}`)
    .replace(/jwksCaFile: .*/g, `jwksCaFile: ${certificates}/ca.pem`)
    .replace(/jwtFile: .*/, `jwtFile: ${jwt}`)
    .replaceAll('/run/tls/tls.crt', `${certificates}/localhost.pem`)
    .replaceAll('/run/tls/tls.key', `${certificates}/key.pem`)
    .replaceAll('/run/tls/ca.crt', `${certificates}/ca.pem`)
  return await loadConfig({ file: await folder.write('proxy.yaml', text), env: {} })
}

const unexpected = (warnings: readonly string[]) =>
  warnings.filter((line) => /listen|callers|minter\.address|fleet\.store/.test(line))

describe.each([
  ['minter', 'jwt', 'jwtFile'],
  ['minter-certificates', 'certificate', 'certFile'],
] as const)('%s', (name, credential, file) => {
  test('two minters, which listen for sidecars alone, with a store and TLS', async () => {
    const { config, warnings } = await load(`deploy/kubernetes/${name}/minter-proxy.yaml`)
    expect(config.listen.address).toBe('off')
    expect(config.minter.address).toMatchObject({ host: '::', port: 8443 })
    expect(config.fleet.store).toMatchObject({ tls: true })
    expect(config.callers.map((caller) => credential in caller)).toEqual([true])
    expect(unexpected(warnings)).toEqual([])
    expect(find('Deployment', 'minter').spec.replicas).toBe(2)
  })

  test('the sidecar has no App and no secret, and calls the minter by the name of its Service', async () => {
    const { config, warnings } = await load(`deploy/kubernetes/${name}/sidecar-proxy.yaml`)
    expect(config.app).toBeUndefined()
    expect(config.minter[file]).toBeDefined()
    expect(unexpected(warnings)).toEqual([])
    const { hostname = '', port = '' } = config.minter.url?.baseUrl ?? {}
    const [service = ''] = hostname.split('.')
    expect(find('Service', service).spec.ports).toEqual([{ name: 'minter', port: Number(port), targetPort: 'minter' }])
  })
})

describe('the pods', () => {
  const minter = find('Deployment', 'minter').spec.template.spec
  const app = find('Deployment', 'billing').spec.template
  const [sidecar] = app.spec.initContainers

  test('only the minter mounts the App secret and the password of the store', () => {
    const secretsOf = (spec: Yaml) => spec.volumes.flatMap(({ secret }: Yaml) => secret?.secretName ?? [])
    expect(secretsOf(minter)).toEqual(['org-access-proxy', 'org-access-proxy-store', 'minter-tls'])
    expect(secretsOf(app.spec)).toEqual([])
  })

  test('the sidecar, and not the app, has a token of ten minutes with the audience and subject of the minter', async () => {
    const { config } = await load(`${FOLDER}/minter-proxy.yaml`)
    const token = app.spec.volumes.find(({ projected }: Yaml) => projected !== undefined).projected.sources[0]
      .serviceAccountToken
    const subject = `system:serviceaccount:default:${app.spec.serviceAccountName}`
    expect(config.callers[0]?.jwt).toMatchObject({ audience: token.audience, subject })
    expect(token.expirationSeconds).toBe(600)
    const { jwtFile } = parse(readProjectFile(`${FOLDER}/sidecar-proxy.yaml`)).minter
    const mount = sidecar.volumeMounts.find(({ name }: Yaml) => name === 'minter-token')
    expect(`${mount.mountPath}/${token.path}`).toBe(jwtFile)
    expect(app.spec.containers[0].volumeMounts).toBeUndefined()
    expect(app.spec.automountServiceAccountToken).toBe(false)
  })

  test('every file of the minter is mounted, as a directory', () => {
    const mounts: Yaml[] = minter.containers[0].volumeMounts
    const { appSecretFile, fleet, minter: settings } = parse(readProjectFile(`${FOLDER}/minter-proxy.yaml`))
    for (const path of [appSecretFile, fleet.passwordFile, settings.tls.certFile, settings.tls.keyFile])
      expect(mounts.map(({ mountPath }) => mountPath)).toContain(dirname(path))
    for (const mount of [...mounts, ...sidecar.volumeMounts]) expect(mount).not.toHaveProperty('subPath')
  })

  test('fit the restricted profile, and the app is another user than its sidecar', () => {
    for (const container of [...minter.containers, sidecar, ...app.spec.containers])
      expect(container.securityContext).toMatchObject({
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'] },
      })
    for (const { securityContext } of [minter, app.spec])
      expect(securityContext).toMatchObject({ runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } })
    expect(app.spec.containers[0].securityContext.runAsUser).not.toBe(sidecar.securityContext.runAsUser)
  })

  test('the policy lets in the pods that are marked as sidecars', () => {
    const [rule] = find('NetworkPolicy', 'minter').spec.ingress
    expect(rule.ports).toEqual([{ port: 'minter' }])
    expect(app.metadata.labels).toMatchObject(rule.from[0].podSelector.matchLabels)
  })

  test('a stop gets enough time', async () => {
    const { config } = await load(`${FOLDER}/minter-proxy.yaml`)
    const { delayMs, timeoutMs } = config.shutdown
    expect(minter.terminationGracePeriodSeconds * 1_000).toBeGreaterThan(delayMs + timeoutMs)
  })

  test('the image is that of this version', () => {
    const { images } = parse(readProjectFile(`${FOLDER}/kustomization.yaml`))
    expect(images).toEqual([expect.objectContaining({ name: sidecar.image, newTag: readManifest().version })])
  })
})

function render(folder: string): Yaml[] {
  const { status, stdout, stderr } = spawnSync(programPath('kubectl'), ['kustomize', projectPath(folder)], {
    encoding: 'utf8',
  })
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
  return parseAllDocuments(stdout, yaml11).map((document) => document.toJS())
}

describe.skipIf(lacks('kubectl'))('what kustomize makes of them', () => {
  test.each(['minter', 'minter-certificates'])('%s has the configurations under names that stay', (name) => {
    const made = render(`deploy/kubernetes/${name}`)
    for (const [map, file] of Object.entries({
      minter: 'minter-proxy.yaml',
      'billing-sidecar': 'sidecar-proxy.yaml',
    })) {
      expect(find('ConfigMap', map, made).data['proxy.yaml']).toBe(readProjectFile(`deploy/kubernetes/${name}/${file}`))
    }
  })

  test('with cert-manager, each has its certificate, and no token of a service account', () => {
    const made = render('deploy/kubernetes/minter-certificates')
    const specOf = (name: string) => find('Deployment', name, made).spec.template.spec
    const tlsOf = (name: string) => specOf(name).volumes.find((volume: Yaml) => volume.name === 'tls').secret
    expect([tlsOf('minter').secretName, tlsOf('billing').secretName]).toEqual(['minter-tls', 'billing-tls'])
    expect(tlsOf('billing').defaultMode).toBe(0o440)
    expect(specOf('billing').initContainers[0].volumeMounts).toContainEqual({
      name: 'tls',
      mountPath: '/run/tls',
      readOnly: true,
    })
    expect(JSON.stringify(specOf('billing'))).not.toContain('serviceAccountToken')
    expect([specOf('minter'), specOf('billing')].map((spec) => spec.automountServiceAccountToken)).toEqual([
      false,
      false,
    ])
    const secrets = made.filter(({ kind }) => kind === 'Certificate').map(({ spec }) => spec.secretName)
    expect(secrets.toSorted()).toEqual(['billing-tls', 'minter-ca', 'minter-tls'])
  })
})
