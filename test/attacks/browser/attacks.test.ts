/**
 * The attack: a web page that the user of this machine opens. A real browser loads it from another origin, and under a name
 * that is rebound to this machine. The page sends all kinds of requests that pages can send. None may reach the service.
 */

import { createServer } from 'node:http'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { type Listening, listening } from '../../support/listening.ts'
import { lacks } from '../../support/programs.ts'
import { request } from '../../support/raw-client.ts'
import { type Service, startService } from '../../support/service.ts'
import { type ProxyUnderTest, startProxy } from '../../support/start-proxy.ts'
import { Browser } from '../../units/admin/browser.ts'

const ORG = 'acme'
const hasBrowser = !lacks('chromium')

let browser: Browser
let service: Service
let proxy: ProxyUnderTest
let site: Listening

beforeAll(async () => {
  if (!hasBrowser) return
  service = await startService({ script: () => ({ fields: ['Access-Control-Allow-Origin', '*'], content: 'hello' }) })
  proxy = await startProxy(service)
  const page = '<!doctype html><title>a page</title><body></body>'
  site = await listening(createServer((_, response) => response.setHeader('content-type', 'text/html').end(page)))
  browser = await Browser.start()
})

afterAll(async () => {
  if (!hasBrowser) return
  await browser[Symbol.asyncDispose]()
  await site[Symbol.asyncDispose]()
  await proxy[Symbol.asyncDispose]()
  await service[Symbol.asyncDispose]()
})

/** Resolves with the outcome of each try. `target` is the address of the proxy for the page. */
function tries(target: string): string {
  return `(async () => {
    const url = (name) => ${JSON.stringify(target)} + '/v2/' + name
    const org = { 'X-Org-Id': '${ORG}' }
    const told = {}
    const tried = async (name, work) => { told[name] = await work().then((value) => String(value), (error) => 'failed') }
    const status = (name, options) => () => fetch(url(name), options).then(({ type, status }) => type === 'opaque' ? 'opaque' : status)
    await tried('fetch', status('fetch', { headers: org }))
    await tried('fetch-simple', status('fetch-simple'))
    await tried('fetch-no-cors', status('fetch-no-cors', { mode: 'no-cors' }))
    await tried('post', status('post', { method: 'POST', headers: org, body: 'x' }))
    await tried('post-no-cors', status('post-no-cors', { method: 'POST', mode: 'no-cors', body: 'x' }))
    await tried('put', status('put', { method: 'PUT', headers: org, body: 'x' }))
    await tried('xhr', () => new Promise((resolve, reject) => {
      const xhr = new XMLHttpRequest()
      xhr.open('GET', url('xhr'))
      xhr.setRequestHeader('X-Org-Id', '${ORG}')
      xhr.onload = () => resolve(xhr.status)
      xhr.onerror = reject
      xhr.send()
    }))
    const loaded = (name, tag, attribute) => tried(name, () => new Promise((resolve, reject) => {
      const element = document.createElement(tag)
      element.onload = () => resolve('loaded')
      element.onerror = reject
      element[attribute] = url(name)
      document.body.append(element)
      if (tag === 'link') element.rel = 'stylesheet'
    }))
    await loaded('image', 'img', 'src')
    await loaded('script', 'script', 'src')
    await tried('beacon', async () => navigator.sendBeacon(url('beacon'), 'x'))
    await tried('websocket', () => new Promise((resolve, reject) => {
      const socket = new WebSocket(url('websocket').replace('http', 'ws'))
      socket.onopen = () => resolve('open')
      socket.onerror = reject
    }))
    await tried('events', () => new Promise((resolve, reject) => {
      const source = new EventSource(url('events'))
      source.onopen = () => { source.close(); resolve('open') }
      source.onerror = () => { source.close(); reject() }
    }))
    for (const method of ['get', 'post']) await tried('form-' + method, () => new Promise((resolve) => {
      const frame = document.createElement('iframe')
      frame.name = 'frame-' + method
      const form = Object.assign(document.createElement('form'), { method, action: url('form-' + method), target: frame.name })
      document.body.append(frame, form)
      frame.onload = () => resolve('answered')
      setTimeout(() => resolve('no answer'), 3000)
      form.submit()
    }))
    return told
  })()`
}

/** The origin of the page, and its name for the proxy. */
const ATTACKS: readonly (readonly [string, () => string, () => string])[] = [
  ['another port of this machine', () => siteUrl('127.0.0.1'), () => `http://127.0.0.1:${proxy.port}`],
  ['another name', () => siteUrl('evil.example'), () => `http://localhost:${proxy.port}`],
  [
    'another name, rebound for its requests',
    () => siteUrl('evil.example'),
    () => `http://rebound.example:${proxy.port}`,
  ],
  // The page itself is an answer of the proxy then, so it has the same origin, as after a rebinding, and no CORS check applies.
  [
    'the rebound name itself',
    () => `http://rebound.example:${proxy.port}/v2/page`,
    () => `http://rebound.example:${proxy.port}`,
  ],
  [
    'the name that the proxy goes by',
    () => `http://localhost:${proxy.port}/v2/page`,
    () => `http://localhost:${proxy.port}`,
  ],
]

function siteUrl(host: string): string {
  return `http://${host}:${site.port}/`
}

test.skipIf(!hasBrowser).each(ATTACKS)('a page from %s', async (_, from, to) => {
  const refusals = () => proxy.logs.filter(({ msg }) => msg === 'request').length
  const before = refusals()
  const page = await browser.open(from())
  const told = await page.evaluate<Record<string, string>>(tries(to()))
  expect(Object.keys(told)).toHaveLength(14)
  expect(
    Object.entries(told).filter(([, outcome]) => outcome === '200' || outcome === 'open' || outcome === 'loaded'),
  ).toEqual([])
  expect(refusals() - before, 'tries that got as far as the proxy').toBeGreaterThan(3)
  expect(service.requests, 'what reached the origin').toEqual([])
  expect(service.tokens.mints, 'what reached the token endpoint').toEqual([])
})

test.skipIf(!hasBrowser)('a program on this machine is still served', async () => {
  expect((await request(proxy.port, get('/v2/x', ORG))).status).toBe(200)
})
