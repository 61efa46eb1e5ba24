import { createServer } from 'node:http'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { Busiest } from '../../../src/admin/busiest.ts'
import { type Listening, listening } from '../../support/listening.ts'
import { lacks } from '../../support/programs.ts'
import { request } from '../../support/raw-client.ts'
import { Browser, type Page } from './browser.ts'
import { AdminUnderTest } from './start-admin.ts'

async function fetchPage(admin: AdminUnderTest) {
  const { content, fields } = await request(admin.port, 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n')
  const policy = fields[fields.indexOf('content-security-policy') + 1] ?? ''
  return { html: content.toString(), policy }
}

/** It shows text of the settings and of clients. */
const TABLE = /<table .*<\/table>/s

let admin: AdminUnderTest
beforeEach(async () => {
  admin = await AdminUnderTest.start()
  return () => admin[Symbol.asyncDispose]()
})

/** A plot's legend shows the latest two seconds, so requests go on. */
function requestsGoOn(): Disposable {
  const timer = setInterval(() => admin.requestEnded({ startedAt: 0, endedAt: 20 }), 100)
  return { [Symbol.dispose]: () => clearInterval(timer) }
}

test('the policy permits the script and style of the page, and nothing that is injected', async () => {
  const { html, policy } = await fetchPage(admin)
  expect(policy).toContain("default-src 'none'")
  expect(policy).toContain("frame-ancestors 'none'")
  expect(policy).not.toMatch(/unsafe|\*|https?:|nonce/)
  expect(html.replace(TABLE, '')).not.toMatch(/ (on\w+|style)=|javascript:|https?:\/\/(?!www\.w3\.org)/)
})

test('without JavaScript, the page is a table, in which an Org whose id is markup is text', async () => {
  const hostile = `<img src=x onerror=alert(1)>"'`
  await admin.mint(hostile)
  admin.requestEnded({ orgId: hostile, status: 502, code: 'dns_error' })
  admin.paused = { text: 'No Org gets a new token.', leftMs: 60_000 }
  const { html } = await fetchPage(admin)
  const [table = ''] = TABLE.exec(html) ?? []
  for (const row of [
    '<th>state<td>Ready, 1 warning\n',
    '<th>warning<td>No Org gets a new token. (since ',
    '<th>busiest Orgs<td>&lt;img src=x onerror=alert(1)>"\' 1\n',
    '<th>dns_error<td>1 time: ',
    '<th>&lt;img src=x onerror=alert(1)>"\'<td>young token',
  ]) {
    expect(table).toContain(row)
  }
  expect(html).not.toContain('<img')
})

test('the bounded counts keep who is busy among a hundred thousand Orgs, and forget in five minutes', () => {
  const busiest = new Busiest()
  for (let i = 0; i < 100_000; i++) {
    busiest.add(`org-${i}`, false, 1_000)
    if (i % 100 === 0) busiest.add('busy', i % 200 === 0, 1_000)
  }
  expect(busiest.shown(1_000).busiest[0]).toEqual({ name: 'busy', requests: 1_000, errors: 500 })
  expect(busiest.shown(1_000).failing.map(({ name }) => name)).toEqual(['busy'])
  busiest.add('later', false, 151_000)
  expect(busiest.shown(151_000).busiest[0]?.name).toBe('busy')
  busiest.add('later', false, 302_000)
  expect(busiest.size(302_000)).toBe(1)
  expect(busiest.shown(302_000)).toMatchObject({ busiest: [{ name: 'later', requests: 2 }], failing: [] })
  expect(busiest.shown(900_000)).toEqual({ busiest: [], failing: [] })
})

describe.skipIf(lacks('chromium'))('in a browser', () => {
  let browser: Browser
  beforeAll(async () => {
    browser = await Browser.start()
  })
  afterAll(() => browser[Symbol.asyncDispose]())

  const text = (selector: string) => `document.querySelector('${selector}')?.textContent`

  async function openPage(admin: AdminUnderTest): Promise<Page> {
    const page = await browser.open(`${admin.url}/`)
    await page.until(`document.querySelector('#state').dataset.colour !== undefined`)
    return page
  }

  test('it shows the state, and requests nothing from elsewhere', async () => {
    await admin.mint('acme')
    admin.callers = [{ name: 'billing', requestsInFlight: 1 }]
    for (let i = 0; i < 40; i++) admin.requestEnded({ caller: i < 3 ? 'billing' : undefined })
    admin.requestEnded({ status: 400, code: 'org_id_missing', orgId: undefined, token: 'none' })
    const page = await openPage(admin)
    expect(await page.evaluate(text('#state'))).toBe('Ready')
    expect(await page.evaluate(text('#program'))).toMatch(/^0\.0\.0-test on Node .*, process \d+, up/)
    expect(await page.evaluate(text('#tile-tokens .figure'))).toBe('1')
    expect(await page.evaluate(text('#tile-requests .notes'))).toContain('answers of the service: 2xx\u00a040')
    expect(await page.evaluate(text('#tile-errors .notes'))).toMatch(
      /^of 41 requests in the last .*1 of the apps’ own$/,
    )
    expect(await page.evaluate(text('#configuration'))).toContain('Configuration applied')
    expect(await page.evaluate(text('#callers'))).toBe('Callers: billing 3 requests, 1 in flight')
    expect(await page.evaluate(text('#service'))).toBe('App my-app at https://api.example.com/')
    expect(await page.evaluate(text('#who'))).toContain('busiest Orgs: acme 40')
    expect(await page.evaluate(`document.querySelector('#plain')`)).toBeNull()
    expect(await page.evaluate(text('#orgs .org'))).toBe('acme')
    expect(await page.evaluate(`document.querySelector('#search').hidden`), 'with one Org').toBe(true)
    expect(await page.evaluate(text('#orgs .age'))).toMatch(/^token \d\u00a0s old, lives about 5\u00a0min$/)
    expect(await page.evaluate(text('#errors .advice'))).toContain('there is no default')
    const top = (id: string) => page.evaluate<number>(`document.querySelector('${id}').getBoundingClientRect().top`)
    expect(await top('#errors')).toBeLessThan(await top('#orgs-note'))
    expect(page.complaints).toEqual([])
    expect(page.requests.filter((url) => !url.startsWith(admin.url) && !url.startsWith('data:'))).toEqual([])
  })

  test('it updates itself: later requests are shown and plotted', async () => {
    const page = await openPage(admin)
    expect(await page.evaluate(text('#orgs-note'))).toContain('No Org has a token yet')
    await admin.mint('acme')
    using _requests = requestsGoOn()
    admin.checks = [{ name: 'app-credentials', isOk: false, detail: 'the service rejects them' }]
    await page.until(`${text('#orgs .org')} === 'acme'`)
    await page.until(`${text('#state')} === 'Not ready'`)
    expect(await page.evaluate(text('#warnings .text'))).toBe('Not ready: the service rejects them')
    expect(await page.evaluate(`document.querySelector('#state').dataset.colour`)).toBe('red')
    await page.until(`document.querySelector('#plots path').getAttribute('d').length > 10`)
    await page.until(`parseFloat(${text('#plots figure:nth-child(2) .value')}) > 0`)
    expect(page.complaints).toEqual([])
  })

  test('an Org whose id is markup is shown as text', async () => {
    const hostile = `<img src=x onerror=alert(1)>"'`
    await admin.mint(hostile)
    const path = '/<script>document.title="taken"</script>'
    admin.requestEnded({ status: 403, code: 'org_access_refused', orgId: hostile, path, requestId: '<b>1</b>' })
    const page = await openPage(admin)
    expect(await page.evaluate(text('#orgs .org'))).toBe(hostile)
    expect(await page.evaluate(text('#errors .examples li'))).toContain(`GET ${path} for ${hostile}`)
    expect(await page.evaluate(`document.querySelectorAll('img, b, main script').length`)).toBe(0)
    expect(await page.evaluate('document.title')).toBe('org-access-proxy')
    expect(page.complaints).toEqual([])
  })

  test('it shows thirty of many Orgs, and finds any', async () => {
    await admin.mint(...Array.from({ length: 300 }, (_, i) => `org-${i}`))
    const page = await openPage(admin)
    const shown = `[...document.querySelectorAll('#orgs .org')].map((org) => org.textContent)`
    expect(await page.evaluate(`${shown}.length`)).toBe(30)
    expect(await page.evaluate(text('#orgs-note'))).toBe('30 of 300 Orgs shown')
    await page.evaluate(`(() => {
      const field = document.querySelector('#search input')
      field.value = 'org-123'
      field.dispatchEvent(new Event('input'))
    })()`)
    await page.until(`${shown}.join() === 'org-123'`)
    expect(await page.evaluate(`document.querySelector('#search').hidden`)).toBe(false)
  })

  test('it has one heading of the first level; warnings make a ready proxy amber', async () => {
    admin.paused = { text: 'No Org gets a new token.', leftMs: 60_000 }
    const page = await openPage(admin)
    expect(await page.evaluate(`[...document.querySelectorAll('h1')].map((h1) => h1.textContent).join()`)).toBe(
      'org-access-proxy Ready, 1 warning',
    )
    expect(await page.evaluate(`document.querySelector('#state').dataset.colour`)).toBe('amber')
    admin.paused = undefined
    await page.until(`document.querySelector('#state').dataset.colour === 'green'`)
  })

  test('the pointer in a plot shows the values of its moment', async () => {
    const page = await openPage(admin)
    const requests = requestsGoOn()
    const values = `[...document.querySelectorAll('#plots figure:nth-child(2) .value')].map((value) => value.textContent).join()`
    await page.until(`parseFloat(${values}) > 0`)
    requests[Symbol.dispose]()
    const pointTo = (share: number) =>
      page.evaluate(`(() => {
        const frame = document.querySelector('#plots .frame')
        const { left, width } = frame.getBoundingClientRect()
        frame.dispatchEvent(new PointerEvent('pointermove', { bubbles: true, clientX: left + ${share} * width }))
      })()`)
    await pointTo(0.5)
    expect(await page.evaluate(values)).toBe('–,–')
    expect(await page.evaluate(text('#plots .at'))).toMatch(/^2\u00a0min\u00a0\d+\u00a0s ago$/)
    await page.evaluate(`document.querySelector('#plots').dispatchEvent(new PointerEvent('pointerleave'))`)
    expect(await page.evaluate(text('#plots .at'))).toBe('')
    expect(page.complaints).toEqual([])
  })

  test('it says when the proxy is away, and reconnects to it, also in a new version', async () => {
    const before = await AdminUnderTest.start()
    const page = await openPage(before)
    await before[Symbol.asyncDispose]()
    await page.until(`document.querySelector('#state').dataset.colour === 'red'`)
    expect(await page.evaluate(text('#program'))).toBe('The proxy does not answer; trying again every 2\u00a0s.')
    const address = { kind: 'tcp', host: 'localhost', port: before.port } as const
    await using _after = await AdminUnderTest.start({ address, version: '0.0.1-test' })
    await page.until(`${text('#program')}.startsWith('0.0.1-test')`)
    await page.until(`${text('#state')} === 'Ready'`)
  })

  test('it fits a phone, and follows the light or dark preference', async () => {
    await admin.mint('x'.repeat(128), 'acme')
    admin.requestEnded({ status: 502, code: 'dns_error', path: `/${'y'.repeat(190)}` })
    const page = await openPage(admin)
    await page.evaluate(`document.querySelector('details').open = true`)
    const ground = 'getComputedStyle(document.body).backgroundColor'
    await page.show(320, 700, 'light')
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(320)
    const cutNames = `[...document.querySelectorAll('.org')].filter((org) => org.scrollWidth > org.clientWidth).length`
    expect(await page.evaluate(cutNames)).toBe(0)
    expect(await page.evaluate(ground)).toBe('rgb(245, 246, 248)')
    await page.show(320, 700, 'dark')
    expect(await page.evaluate(ground)).toBe('rgb(13, 17, 23)')
  })

  test('its own origin may purge; a page from elsewhere cannot purge, read, frame or link', async () => {
    await admin.mint('a', 'b')
    const own = await openPage(admin)
    expect(await own.evaluate(`fetch('/tokens/purge?org=a', { method: 'POST' }).then((r) => r.status)`)).toBe(200)
    expect(admin.orgs.tokenCount).toBe(1)

    await using elsewhere = await startPageElsewhere()
    for (const name of ['evil.example', 'localhost']) {
      const page = await browser.open(`http://${name}:${elsewhere.port}/`)
      for (const mode of ['cors', 'no-cors']) {
        for (const [method, path] of [
          ['POST', '/tokens/purge?org=all'],
          ['GET', '/status'],
        ]) {
          const call = `fetch('${admin.url}${path}', { method: '${method}', mode: '${mode}' })`
          expect(await page.evaluate(`${call}.then((r) => r.text(), () => 'nothing')`)).toBe('nothing')
        }
      }
      await page.evaluate(`(() => {
        const form = document.createElement('form')
        form.method = 'post'
        form.action = '${admin.url}/tokens/purge?org=all'
        document.body.append(form)
        form.submit()
      })()`)
      await page.until(`location.href.startsWith('${admin.url}')`)
      expect(await page.evaluate('document.body.textContent')).toContain('browser_refused')
    }
    expect(admin.orgs.tokenCount).toBe(1)
  })

  test('a page whose name is rebound to this machine reaches nothing', async () => {
    const elsewhere = await startPageElsewhere()
    const page = await browser.open(`http://rebound.example:${elsewhere.port}/`)
    await elsewhere[Symbol.asyncDispose]()
    await using admin = await AdminUnderTest.start({
      address: { kind: 'tcp', host: 'localhost', port: elsewhere.port },
    })
    await admin.mint('a')
    const status = (call: string) => page.evaluate(`fetch(${call}).then((r) => r.status)`)
    expect(await status(`'/status'`)).toBe(421)
    expect(await status(`'/tokens/purge?org=all', { method: 'POST' }`)).toBe(421)
    expect(admin.orgs.tokenCount).toBe(1)
  })
})

function startPageElsewhere(): Promise<Listening> {
  return listening(createServer((_, response) => response.setHeader('content-type', 'text/html').end('<p>')))
}
