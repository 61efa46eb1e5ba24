/** The built program under TLS: clients with a certificate. */

import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
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

const { at, path } = await folderForFile()
const servers = new CertificateAuthority(path, 'servers')
const clients = new CertificateAuthority(path, 'clients')
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

test('certificates of NODE_EXTRA_CA_CERTS are trusted beside origin.caFile', async () => {
  await using service = await startService({ tls: certificate('localhost') })
  await using env = await environmentFor(service)
  await writeFile(at('other.pem'), servers.cert)
  const trusted = { NODE_EXTRA_CA_CERTS: CA_FILE, OAP_ORIGIN_CA_FILE: at('other.pem') }
  proxy = spawnProxy({ env: { ...env, ...trusted } })
  expect((await rawRequest((await proxy.ready()).port, get('/v2/x', 'acme'))).status).toBe(200)
})
