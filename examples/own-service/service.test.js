/** Tests of the service with the real proxy in front of the sandbox. The sandbox fails when a test tells it to. */

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, before, beforeEach, test } from 'node:test'
import { startSandbox } from 'org-access-proxy/sandbox'
import { startProxy } from 'org-access-proxy/testing'
import { createService } from './service.js'

const MEMBERS = { acme: ['Wile E.', 'Road Runner'], globex: ['Hank'] }

let sandbox
let proxy
let service

before(async () => {
  sandbox = await startSandbox({
    linked: Object.keys(MEMBERS),
    handler: (_request, response, org) => {
      response.setHeader('content-type', 'application/json')
      response.end(JSON.stringify(MEMBERS[org]))
    },
  })
  proxy = await startProxy(sandbox)
  service = createService({ proxyUrl: proxy.url }).listen(0, '127.0.0.1')
  await once(service, 'listening')
})

after(async () => {
  service?.close()
  await proxy?.close()
  await sandbox?.close()
})

beforeEach(() => sandbox.set({ mintFaults: [], requestFaults: [] }))

async function greetingOf(org) {
  const response = await fetch(`http://127.0.0.1:${service.address().port}/?org=${org}`)
  return { status: response.status, text: await response.text() }
}

test('each org is greeted by its own names', async () => {
  assert.deepEqual(await greetingOf('acme'), { status: 200, text: 'Hello Wile E. and Road Runner!' })
  assert.deepEqual(await greetingOf('globex'), { status: 200, text: 'Hello Hank!' })
})

test('many greetings take one token', async () => {
  await Promise.all(Array.from({ length: 50 }, () => greetingOf('acme')))
  assert.equal(sandbox.stats().orgs.acme.mints, 1)
})

test('a token that is revoked early goes unnoticed', async () => {
  await greetingOf('acme')
  assert.equal(sandbox.revoke('acme'), 1)
  assert.equal((await greetingOf('acme')).status, 200)
})

test('an org that has not linked is told so', async () => {
  assert.deepEqual(await greetingOf('initech'), { status: 404, text: 'initech has not linked with us yet.' })
})

test('a failing service is not taken for a failing proxy', async () => {
  sandbox.set({ requestFaults: [{ kind: 'status', status: 500 }] })
  assert.deepEqual(await greetingOf('acme'), { status: 502, text: 'The service answered 500.' })
})

test('a connection that breaks is a reason to come back later', async () => {
  sandbox.set({ requestFaults: [{ kind: 'reset' }] })
  assert.deepEqual(await greetingOf('acme'), { status: 503, text: 'Please come back later.' })
})
