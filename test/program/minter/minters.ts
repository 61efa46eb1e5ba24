/** Minters and their sidecars, in the process of the test, over every kind of credential. */

import { onTestFinished } from 'vitest'
import { CertificateAuthority } from '../../support/certificate-authority.ts'
import { folderForFile } from '../../support/folder.ts'
import { outcomeOf, request } from '../../support/raw-client.ts'
import type { Service } from '../../support/service.ts'
import { type ProxySettings, type ProxyUnderTest, startProxy } from '../../support/start-proxy.ts'
import { type Issuer, makeIssuer, sign } from '../../units/callers/issuer.ts'

export const BILLING_KEY = 'billing-key-0123456789'
export const REPORTS_KEY = 'reports-key-0123456789'

/** Two callers with keys; both may name `shared`. */
export const KEY_CALLERS = `
callers:
  - {name: billing, keyFiles: [billing.key], tokens: true, orgs: [acme, shared, "globex-*"]}
  - {name: reports, keyFiles: [reports.key], tokens: true, orgs: [initech, shared]}
`
const KEY_FILES = { 'billing.key': BILLING_KEY, 'reports.key': REPORTS_KEY }

/** A minter alone, with plain HTTP on loopback. Ends with the test. */
export async function startMinter(
  service: Service,
  settings: ProxySettings = {},
  files: Readonly<Record<string, string>> = { 'proxy.yaml': KEY_CALLERS },
): Promise<ProxyUnderTest> {
  const minter = await startProxy(
    service,
    {
      'listen.address': 'off',
      'minter.address': 'localhost:0',
      'admin.address': 'unix:$FOLDER/admin.sock',
      ...settings,
    },
    { ...KEY_FILES, ...files },
  )
  onTestFinished(() => minter[Symbol.asyncDispose]())
  return minter
}

/** A sidecar of the minter on this port, known by this key. Ends with the test. */
export async function startSidecar(
  service: Service,
  minter: ProxyUnderTest | number,
  settings: ProxySettings = {},
  key = BILLING_KEY,
  files: Readonly<Record<string, string>> = {},
): Promise<ProxyUnderTest> {
  const port = typeof minter === 'number' ? minter : minter.minterPort
  const sidecar = await startProxy(
    service,
    {
      'minter.url': `http://localhost:${port}`,
      ...(settings['minter.url'] === undefined && { 'minter.keyFile': '$FOLDER/minter.key' }),
      'admin.address': 'localhost:0',
      ...settings,
    },
    { 'minter.key': key, ...files },
  )
  onTestFinished(() => sidecar[Symbol.asyncDispose]())
  return sidecar
}

/** The status of a request for this Org, or the code of the problem. */
export async function outcome(proxy: ProxyUnderTest, org: string, path = '/v2/things'): Promise<string | number> {
  return outcomeOf(await request(proxy.port, `GET ${path} HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: ${org}\r\n\r\n`))
}

export interface Asked {
  readonly key?: string | undefined
  readonly org?: string
  readonly rejected?: string | undefined
}

/** Asks a minter as a sidecar does. Resolves with the token, or with the code of the problem. */
export async function ask(
  at: number | string,
  { key = BILLING_KEY, org = 'acme', rejected }: Asked = {},
): Promise<{ readonly id: string; readonly token: string; readonly code?: string; readonly status: number } & Lives> {
  const content = JSON.stringify({ rejected })
  const response = await request(
    at,
    `POST /v1/orgs/${encodeURIComponent(org)}/token HTTP/1.1\r\nHost: minter\r\nX-Proxy-Key: ${key}\r\nContent-Length: ${content.length}\r\n\r\n${content}`,
  )
  return { ...JSON.parse(response.content.toString()), status: response.status }
}

interface Lives {
  readonly ageMs: number
  readonly statedLifeMs: number | null
}

const SUBJECT = 'system:serviceaccount:jobs:batch'

/** Servers, clients and an issuer of JWTs, for one file. */
export async function makeTrust() {
  const { path } = await folderForFile()
  const servers = new CertificateAuthority(path, 'servers')
  const clients = new CertificateAuthority(path, 'clients')
  const strangers = new CertificateAuthority(path, 'strangers')
  const issuer: Issuer = await makeIssuer()
  const own = servers.issue({ names: 'DNS:localhost,IP:127.0.0.1' })
  const files = {
    'cert.pem': own.cert,
    'key.pem': own.key,
    'servers.pem': servers.cert,
    'clients.pem': clients.cert,
    'jwks.json': issuer.jwks,
    'proxy.yaml': `
minter: {tls: {certFile: cert.pem, keyFile: key.pem, clientCaFile: clients.pem}}
callers:
  - {name: billing, keyFiles: [billing.key], tokens: true, orgs: [acme]}
  - {name: web, certificate: "spiffe://example.org/web", tokens: true, orgs: [globex]}
  - {name: mail, certificate: "dns:mail.svc", tokens: true, orgs: [umbrella]}
  - name: batch
    jwt: {issuer: "https://issuer.example", audience: org-access-proxy, subject: "${SUBJECT}", jwks: jwks.json}
    tokens: true
    orgs: [initech]
  - name: night
    jwt: {issuer: "https://issuer.example", audience: org-access-proxy, subject: "system:serviceaccount:jobs:night", jwks: jwks.json}
    tokens: true
    orgs: [hooli]
`,
  }
  return {
    servers,
    clients,
    strangers,
    own,
    files,
    jwt: (subject = SUBJECT) => sign(issuer, { claims: { sub: subject } }),
  }
}
