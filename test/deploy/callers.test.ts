/** The manifests and examples for callers: the program accepts them, and they agree with each other. */

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { loadConfig } from '../../src/config/load.ts'
import { lacks, programPath } from '../support/programs.ts'
import { projectPath, readProjectFile } from '../support/project-files.ts'

const SHARED = 'deploy/kubernetes/shared'

interface Manifest {
  readonly kind: string
  readonly metadata: { readonly name: string; readonly namespace?: string }
  readonly spec?: {
    readonly ports?: readonly { readonly port: number; readonly targetPort: string }[]
    readonly secretName?: string
    readonly ingress?: readonly {
      readonly from: readonly { readonly podSelector: { readonly matchLabels: object } }[]
      readonly ports: readonly object[]
    }[]
    readonly template?: { readonly metadata: { readonly labels: object }; readonly spec: Pod }
  }
}

interface Pod {
  readonly serviceAccountName: string
  readonly automountServiceAccountToken?: boolean
  readonly terminationGracePeriodSeconds?: number
  readonly containers: readonly {
    readonly args?: readonly string[]
    readonly ports?: readonly { readonly name: string; readonly containerPort: number }[]
    readonly env?: readonly { readonly name: string; readonly value: string }[]
    readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[]
  }[]
  readonly volumes: readonly {
    readonly name: string
    readonly projected?: { readonly sources: readonly { readonly serviceAccountToken: ProjectedToken }[] }
  }[]
}

interface ProjectedToken {
  readonly path: string
  readonly audience: string
  readonly expirationSeconds: number
}

const manifests = ['gateway.yaml', 'caller.yaml'].flatMap((name): Manifest[] =>
  parseAllDocuments(readProjectFile(`${SHARED}/${name}`), { version: '1.1' }).map((document) => document.toJS()),
)

function find(kind: string, name: string): Manifest | undefined {
  return manifests.find((manifest) => manifest.kind === kind && manifest.metadata.name === name)
}

/** What kustomize makes of a folder. */
function render(folder: string): Manifest[] {
  const { stdout, stderr, status } = spawnSync(programPath('kubectl'), ['kustomize', projectPath(folder)], {
    encoding: 'utf8',
  })
  expect(status, stderr).toBe(0)
  return parseAllDocuments(stdout).map((document): Manifest => document.toJS())
}

const proxyPod = find('Deployment', 'org-access-proxy')?.spec?.template?.spec
const callerPod = find('Deployment', 'billing')?.spec?.template?.spec

describe('the shared gateway', () => {
  /** The file with the paths of a pod replaced by ones that exist here. */
  async function load() {
    const folder = await mkdtemp(join(tmpdir(), 'oap-'))
    try {
      const text = readProjectFile(`${SHARED}/proxy.yaml`)
        .replace(/appSecretFile: .*/, `appSecretFile: ${projectPath('config/sandbox.secret')}`)
        .replaceAll(/jwksCaFile: .*/g, `jwksCaFile: ${projectPath('test/support/certificates/ca.pem')}`)
      await writeFile(join(folder, 'proxy.yaml'), text)
      return await loadConfig({ file: join(folder, 'proxy.yaml'), env: {} })
    } finally {
      await rm(folder, { recursive: true })
    }
  }

  test('has a valid configuration, with one warning about who may connect: it wants an encrypted network', async () => {
    const { config, warnings } = await load()
    expect(config.callers.map(({ name }) => name)).toEqual(['billing', 'reports'])
    const found = warnings.filter((line) => /listen\.address|callers/.test(line))
    expect(found).toEqual([expect.stringContaining('in the clear')])
    expect(proxyPod?.containers[0]?.args).toEqual(['serve', '--config', '/etc/org-access-proxy/proxy.yaml'])
    const { address } = config.listen
    expect(proxyPod?.containers[0]?.ports).toContainEqual({
      name: 'proxy',
      containerPort: address.kind === 'tcp' && address.port,
    })
  })

  test('has its own token, to fetch the keys of the cluster', async () => {
    expect(proxyPod?.automountServiceAccountToken).not.toBe(false)
    expect(find('ServiceAccount', proxyPod?.serviceAccountName ?? '')).toBeDefined()
    const mounted = '/var/run/secrets/kubernetes.io/serviceaccount/'
    for (const line of readProjectFile(`${SHARED}/proxy.yaml`).match(/jwks(Ca|Token)File: .*/g) ?? []) {
      expect(line).toContain(mounted)
    }
  })

  test('the caller asks for a token of ten minutes, with the audience and subject of the configuration', async () => {
    const { config } = await load()
    const token = callerPod?.volumes[0]?.projected?.sources[0]?.serviceAccountToken
    const credential = config.callers.find(({ name }) => name === 'billing')?.credential
    expect(credential).toMatchObject({
      audience: token?.audience,
      subject: `system:serviceaccount:default:${callerPod?.serviceAccountName}`,
    })
    expect(token?.expirationSeconds).toBe(600)
    const container = callerPod?.containers[0]
    const file = container?.env?.find(({ name }) => name === 'PROXY_TOKEN_FILE')?.value
    expect(file).toBe(`${container?.volumeMounts[0]?.mountPath}/${token?.path}`)
  })

  test('the caller calls the proxy by a name that is accepted in Host', async () => {
    const { config } = await load()
    const url = new URL(callerPod?.containers[0]?.env?.find(({ name }) => name === 'PROXY_URL')?.value ?? '')
    expect(config.listen.hosts).toContain(url.hostname)
    const service = find('Service', url.hostname)
    expect(service?.spec?.ports).toEqual([{ name: 'proxy', port: Number(url.port), targetPort: 'proxy' }])
  })

  test('stays reachable while the cluster still sends it connections, and has time to end', async () => {
    const { shutdown } = (await load()).config
    expect(shutdown.delay).toBeGreaterThan(0)
    const graceMs = (proxyPod?.terminationGracePeriodSeconds ?? 0) * 1_000
    expect(graceMs).toBeGreaterThan(shutdown.delay + shutdown.timeout)
  })

  test('lets in the pods that are marked as callers', () => {
    const [rule] = find('NetworkPolicy', 'org-access-proxy')?.spec?.ingress ?? []
    const [peer] = rule?.from ?? []
    expect(rule?.ports).toEqual([{ port: 'proxy' }])
    expect(find('Deployment', 'billing')?.spec?.template?.metadata.labels).toMatchObject(
      peer?.podSelector.matchLabels ?? {},
    )
  })

  test.skipIf(lacks('kubectl'))('kustomize builds it, and the ConfigMap keeps its name', () => {
    const made = render(SHARED)
    expect(made.find(({ kind }) => kind === 'ConfigMap')?.metadata.name).toBe('org-access-proxy')
  })
})

describe('the shared gateway over TLS', () => {
  const folder = 'deploy/kubernetes/shared-tls'

  test('has a valid configuration, without a warning about credentials in the clear', async () => {
    const certificates = projectPath('test/support/certificates')
    const text = readProjectFile(`${folder}/base/proxy.yaml`)
      .replace(/appSecretFile: .*/, `appSecretFile: ${projectPath('config/sandbox.secret')}`)
      .replace('/run/tls/tls.crt', `${certificates}/localhost.pem`)
      .replace('/run/tls/tls.key', `${certificates}/key.pem`)
      .replace('/run/tls/ca.crt', `${certificates}/ca.pem`)
    const own = await mkdtemp(join(tmpdir(), 'oap-'))
    try {
      await writeFile(join(own, 'proxy.yaml'), text)
      const { config, warnings } = await loadConfig({ file: join(own, 'proxy.yaml'), env: {} })
      expect(config.callers[0]?.credential).toMatchObject({ kind: 'certificate' })
      expect(warnings.join('\n')).not.toMatch(/listen\.address|callers/)
    } finally {
      await rm(own, { recursive: true })
    }
  })

  test.skipIf(lacks('kubectl')).each(['cert-manager', 'spiffe'])(
    'with %s, proxy and caller have certificates',
    (name) => {
      const made = render(`${folder}/${name}`)
      for (const deployment of ['org-access-proxy', 'billing']) {
        const pod = made.find(({ kind, metadata }) => kind === 'Deployment' && metadata.name === deployment)?.spec
          ?.template?.spec
        expect(pod?.volumes.map((volume) => volume.name)).toContain('tls')
        expect(pod?.containers[0]?.volumeMounts).toContainEqual({ name: 'tls', mountPath: '/run/tls', readOnly: true })
      }
      if (name === 'cert-manager') {
        const secrets = made.filter(({ kind }) => kind === 'Certificate').map(({ spec }) => spec?.secretName)
        expect(secrets.toSorted()).toEqual(['billing-tls', 'org-access-proxy-ca', 'org-access-proxy-tls'])
      } else {
        const names = readProjectFile(`${folder}/spiffe/helper.conf`).match(/(?<=_file_name = ").*(?=")/g)
        expect(names).toEqual(['tls.crt', 'tls.key', 'ca.crt'])
      }
    },
  )
})

describe('callers on one host', () => {
  test('each has its own directory, made by tmpfiles.d and writable for the unit', () => {
    const { callers }: { callers: { name: string; socket: string }[] } = parse(
      readProjectFile('deploy/systemd/callers.yaml'),
    )
    const lines = readProjectFile('deploy/systemd/callers.tmpfiles.conf')
      .split('\n')
      .map((line) => line.split(/\s+/))
    expect(readProjectFile('deploy/systemd/callers.service.conf')).toContain('ReadWritePaths=/run/oap\n')
    for (const { name, socket } of callers) {
      const folder = socket.slice(0, socket.lastIndexOf('/'))
      expect(lines).toContainEqual(['d', folder, '2750', 'org-access-proxy', name])
    }
  })

  test('the configuration is valid', async () => {
    const file = projectPath('deploy/systemd/callers.yaml')
    const env = {
      OAP_APP_ID: 'a',
      OAP_APP_SECRET: 'correct horse battery staple',
      OAP_BASE_URL: 'https://api.example.com',
    }
    expect((await loadConfig({ file, env })).config.callers.map(({ name }) => name)).toEqual(['billing', 'reports'])
  })
})

describe('the examples in docs/callers.md', () => {
  const page = readProjectFile('docs/callers.md')
  const example = (language: string) => new RegExp(`\`\`\`${language}\\n([^]*?)\`\`\``).exec(page)?.[1] ?? ''
  const seen: (string | string[] | undefined)[][] = []
  const server = createServer(({ url, headers }, response) => {
    seen.push([url, headers['x-org-id'], headers['x-proxy-key']])
    response.end('ok')
  })
  let folder: string

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'oap-'))
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
  })

  afterAll(async () => {
    server.close()
    await rm(folder, { recursive: true })
  })

  /** Runs a program that calls twice, and waits between the calls for a line on its input. */
  async function callTwice(command: string, args: readonly string[]): Promise<void> {
    seen.length = 0
    await writeFile(join(folder, 'token'), 'first\n')
    const env = {
      ...process.env,
      PROXY_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      PROXY_TOKEN_FILE: join(folder, 'token'),
    }
    const child = spawn(command, args, { cwd: folder, env, stdio: ['pipe', 'pipe', 'inherit'] })
    await once(child.stdout, 'data')
    await writeFile(join(folder, 'token'), 'second\n')
    child.stdin.end('go on\n')
    await once(child, 'exit')
    expect(seen).toEqual([
      ['/v2/x', 'acme', 'first'],
      ['/v2/x', 'acme', 'second'],
    ])
  }

  test('Node reads the token anew', async () => {
    const main = `
await callService('/v2/x', 'acme')
console.log('called')
process.stdin.once('data', async () => {
  await callService('/v2/x', 'acme')
  process.exit()
})`
    await writeFile(join(folder, 'example.mjs'), example('js') + main)
    await callTwice(process.execPath, ['example.mjs'])
  })

  test.skipIf(lacks('python3'))('Python reads the token anew', async () => {
    const main = `
call_service("/v2/x", "acme").read()
print("called", flush=True)
input()
call_service("/v2/x", "acme").read()
`
    await writeFile(join(folder, 'example.py'), example('python') + main)
    await callTwice(programPath('python3'), ['example.py'])
  })

  test.skipIf(lacks('go'))('Go compiles', async () => {
    await writeFile(join(folder, 'go.mod'), 'module service\n')
    await writeFile(join(folder, 'service.go'), example('go'))
    const { status, stderr } = spawnSync(programPath('go'), ['vet', '.'], { cwd: folder, encoding: 'utf8' })
    expect([status, stderr]).toEqual([0, ''])
  })

  test('the configuration has a valid shape', () => {
    const { callers }: { callers: { name: string }[] } = parse(example('yaml'))
    expect(callers.map(({ name }) => name)).toEqual(['billing', 'reports', 'batch'])
  })
})
