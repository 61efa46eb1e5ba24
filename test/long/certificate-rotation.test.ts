/** Certificates, keys and CA files of the listener that change under load. */

import { once } from 'node:events'
import { mkdir, rename, symlink, writeFile } from 'node:fs/promises'
import type { IncomingMessage } from 'node:http'
import { Agent, request } from 'node:https'
import { setTimeout as sleep } from 'node:timers/promises'
import { TLSSocket } from 'node:tls'
import { expect, test } from 'vitest'
import { CertificateAuthority } from '../support/certificate-authority.ts'
import { folderForFile } from '../support/folder.ts'
import { serviceForFile } from '../support/service-for-file.ts'
import { spawnProxy } from '../support/spawn-proxy.ts'

/** A longer run: see test/soak/README.md. */
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
  const tls = { certFile: '..data/tls.crt', keyFile: '..data/tls.key', clientCaFile: '..data/ca.crt' }
  const callers = [{ name: 'batch', certificate: clientNames.names.slice('URI:'.length), orgs: ['acme'] }]
  await writeFile(at('proxy.json'), JSON.stringify({ listen: { tls }, callers }))
  await using proxy = spawnProxy({ args: ['--config', at('proxy.json')], env: file.env })
  const { port } = await proxy.ready()
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
