/** The built program under TLS: clients with a certificate, and files that change under load. */

import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, rename, symlink, writeFile } from 'node:fs/promises'
import type { IncomingMessage } from 'node:http'
import { Agent, request } from 'node:https'
import { setTimeout as sleep } from 'node:timers/promises'
import { TLSSocket } from 'node:tls'
import { promisify } from 'node:util'
import { beforeEach, describe, expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { CertificateAuthority } from '../../support/certificate-authority.ts'
import { CA_FILE, certificate } from '../../support/certificates.ts'
import { folderForFile } from '../../support/folder.ts'
import { lacks, programPath } from '../../support/programs.ts'
import { request as rawRequest } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { serviceForFile } from '../../support/service-for-file.ts'
import { environmentFor, type SpawnedProxy, spawnProxy } from '../../support/spawn-proxy.ts'

/** A longer run: see soak/README.md. */
const SECONDS = Number(process.env['ROTATION_SECONDS'] ?? 8)
const ROTATE_EVERY_MS = SECONDS > 60 ? 10_000 : 2_500
const REQUEST_EVERY_MS = 5
/** Of the requests, one in so many opens a connection of its own. */
const FRESH_EVERY = 4

const { at, path } = await folderForFile()
const servers = new CertificateAuthority(path, 'servers')
const clients = new CertificateAuthority(path, 'clients')
const nextClients = new CertificateAuthority(path, 'next-clients')
const serverNames = { names: 'DNS:localhost,IP:127.0.0.1' }
const clientNames = { names: 'URI:spiffe://example.org/ns/jobs/sa/batch' }

const file = serviceForFile({ script: ({ target }) => ({ content: target }) })
let proxy: SpawnedProxy
let port: number
async function start(files: Readonly<Record<'certFile' | 'keyFile' | 'clientCaFile', string>>): Promise<void> {
  const callers = [{ name: 'batch', certificate: clientNames.names.slice('URI:'.length), orgs: ['acme'] }]
  await writeFile(at('proxy.json'), JSON.stringify({ listen: { tls: files }, callers }))
  proxy = spawnProxy({ args: ['--config', at('proxy.json')], env: file.env })
  port = (await proxy.ready()).port
}
beforeEach(() => () => proxy[Symbol.asyncDispose]())

describe('a client with a certificate', () => {
  beforeEach(async () => {
    const [server, client] = [servers.issue(serverNames), clients.issue(clientNames)]
    const contents = { server: server.cert, 'server-key': server.key, clients: clients.cert, servers: servers.cert }
    for (const [name, text] of Object.entries({ ...contents, client: client.cert, 'client-key': client.key }))
      await writeFile(at(`${name}.pem`), text)
    await start({ certFile: 'server.pem', keyFile: 'server-key.pem', clientCaFile: 'clients.pem' })
  })

  const python = `
import ssl, sys, urllib.request
context = ssl.create_default_context(cafile="servers.pem")
context.load_cert_chain("client.pem", "client-key.pem")
request = urllib.request.Request(sys.argv[1], headers={"X-Org-Id": "acme"})
print(urllib.request.urlopen(request, context=context).read().decode())`
  const go = `package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
)

func main() {
	pem, _ := os.ReadFile("servers.pem")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	own, err := tls.LoadX509KeyPair("client.pem", "client-key.pem")
	if err != nil {
		panic(err)
	}
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
	request, _ := http.NewRequest("GET", os.Args[1], nil)
	request.Header.Set("X-Org-Id", "acme")
	response, err := client.Do(request)
	if err != nil {
		panic(err)
	}
	io.Copy(os.Stdout, response.Body)
}
`
  const curl = '-sS --cacert servers.pem --cert client.pem --key client-key.pem -H X-Org-Id:acme'.split(' ')

  test.for([
    ['curl', curl],
    ['python3', ['-c', python]],
    ['go', ['run', 'client.go']],
  ] as const)('%s', { timeout: 60_000 }, async ([name, args], { skip }) => {
    skip(lacks(name))
    await writeFile(at('client.go'), go)
    const env = { ...process.env, GOFLAGS: '-mod=mod' }
    const url = `https://localhost:${port}/v2/from-${name}`
    const { stdout } = await promisify(execFile)(programPath(name), [...args, url], { cwd: path, env })
    expect(stdout.trim()).toBe(`/v2/from-${name}`)
    expect(await proxy.waitForLine(/"msg":"request"/)).toContain('"caller":"batch"')
  })
})

/** As `kubelet` and cert-manager do: a new folder, and a symlink that is swapped. */
async function swapFolder(files: Readonly<Record<string, string>>, round: number): Promise<void> {
  await mkdir(at(`..${round}`))
  for (const [name, text] of Object.entries(files)) await writeFile(at(`..${round}/${name}`), text)
  await symlink(`..${round}`, at('..next'))
  await rename(at('..next'), at('..data'))
}

/** As SPIFFE's helper does: one file behind the other, in place. */
async function overwrite(files: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, text] of Object.entries(files)) {
    await writeFile(at(`..data/${name}`), text)
    await sleep(20)
  }
}

test('certificates change under load, and no request fails', { timeout: SECONDS * 1_000 + 60_000 }, async () => {
  let identity = clients.issue(clientNames)
  const rotate = async (round: number) => {
    const own = servers.issue(serverNames)
    const authorities = round === 0 ? clients.cert : clients.cert + nextClients.cert
    const files = { 'tls.crt': own.cert, 'tls.key': own.key, 'ca.crt': authorities }
    await (round % 2 === 0 ? swapFolder : overwrite)(files, round)
  }
  await rotate(0)
  await start({ certFile: '..data/tls.crt', keyFile: '..data/tls.key', clientCaFile: '..data/ca.crt' })
  const agent = new Agent({ keepAlive: true, maxSockets: 20 })
  const failures: string[] = []
  const presented = new Set<string>()
  const send = async (number: number) => {
    const connection = { host: '127.0.0.1', port, ca: servers.cert, cert: identity.cert, key: identity.key }
    const isFresh = number % FRESH_EVERY === 0
    const options = { path: `/v2/${number}`, headers: { 'X-Org-Id': 'acme' }, agent: isFresh ? false : agent }
    const sent = request({ ...connection, ...options }).end()
    sent.setTimeout(30_000, () => sent.destroy(new Error('no answer in 30 s')))
    try {
      const [response] = (await once(sent, 'response')) as [IncomingMessage]
      const { socket, statusCode } = response
      if (isFresh && socket instanceof TLSSocket) presented.add(socket.getPeerX509Certificate()?.serialNumber ?? '')
      if (statusCode !== 200) failures.push(`${number}: ${statusCode}`)
      for await (const _ of response);
    } catch (error) {
      failures.push(`${number}: ${error}`)
    }
  }
  const trustsNext = () => proxy.stdout.some((line) => line.includes('"listen.tls.clientCaFile"'))
  const sent: Promise<void>[] = []
  const startedAt = performance.now()
  let rotations = 0
  let rotation = Promise.resolve()
  while (performance.now() - startedAt < SECONDS * 1_000) {
    const elapsedMs = performance.now() - startedAt
    if (elapsedMs > (rotations + 1) * ROTATE_EVERY_MS) {
      rotations++
      rotation = rotate(rotations)
      identity = (trustsNext() ? nextClients : clients).issue(clientNames)
    }
    sent.push(send(sent.length)) // without a burst after a standstill of this busy process, which would overload both
    await sleep(REQUEST_EVERY_MS)
  }
  await Promise.all([...sent, rotation])
  while (presented.size <= rotations / 2) await send(0) // on a busy machine, the proxy looks at its files late
  agent.destroy()
  console.info(`${sent.length} requests, ${rotations} rotations, ${presented.size} certificates`)
  expect(failures.slice(0, 10)).toEqual([])
})

test('certificates of NODE_EXTRA_CA_CERTS are trusted beside origin.caFile', async () => {
  await using service = await startService({ tls: certificate('localhost') })
  await using env = await environmentFor(service)
  await writeFile(at('other.pem'), servers.cert)
  const trusted = { NODE_EXTRA_CA_CERTS: CA_FILE, OAP_ORIGIN_CA_FILE: at('other.pem') }
  proxy = spawnProxy({ env: { ...env, ...trusted } })
  expect((await rawRequest((await proxy.ready()).port, get('/v2/x', 'acme'))).status).toBe(200)
})
