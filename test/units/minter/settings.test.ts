/** The settings of minters and sidecars: what contradicts itself, and what may be reloaded. */

import { writeFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { loadConfig } from '../../../src/config/load.ts'
import { ConfigRefused } from '../../../src/config/problem.ts'
import { certificateFiles } from '../../support/certificates.ts'
import { folderForFile } from '../../support/folder.ts'

const folder = await folderForFile()
const { certificate, key } = certificateFiles('localhost')
await folder.write('a.key', 'a-key-0123456789')
await folder.write('secret', 'the-secret')
await folder.write('no.jwt', 'not a JWT')
await folder.write('a.jwt', 'eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl')

const APP = 'appId: app\nappSecretFile: secret\n'
const CALLERS = 'callers: [{name: a, keyFiles: [a.key], tokens: true, orgs: [acme]}]\n'
const BASE = 'baseUrl: http://127.0.0.1:9\n'

/** Each problem as `key: message`. */
async function problemsOf(text: string, env: Record<string, string> = {}): Promise<string[]> {
  await writeFile(folder.at('proxy.yaml'), BASE + text)
  try {
    await loadConfig({ file: folder.at('proxy.yaml'), env })
    return []
  } catch (error) {
    if (!(error instanceof ConfigRefused)) throw error
    return error.lines.map((line) => line.replace(/ \([^)]*\)/, ''))
  }
}

test.each([
  [`${APP}${CALLERS}minter: {address: "localhost:0"}`],
  [`${APP}${CALLERS}minter: {address: "localhost:0"}\nlisten: {address: off}`],
  [`${APP}${CALLERS}minter: {address: "unix:/tmp/minter.sock"}`],
  [`${APP}${CALLERS}minter: {address: "0.0.0.0:0", tls: {certFile: ${certificate}, keyFile: ${key}}}`],
  [
    `${APP}callers: [{name: a, minterSocket: /tmp/a.sock, tokens: true, orgs: [acme]}]\nminter: {address: "localhost:0"}`,
  ],
  ['minter: {url: "http://localhost:1", keyFile: a.key}'],
  ['minter: {url: "http://[::1]:1", jwtFile: a.jwt}'],
  ['minter: {url: "unix:/tmp/minter.sock"}'],
  [`minter: {url: "https://minter.svc:8443", certFile: ${certificate}, certKeyFile: ${key}, caFile: ${certificate}}`],
])('%s', async (text) => {
  expect(await problemsOf(text)).toEqual([])
})

test.each<[string, string[]]>([
  [`${APP}minter: {address: "localhost:0"}`, ['minter.address: needs a caller with tokens: true']],
  [`${APP}${CALLERS}minter: {address: "0.0.0.0:0"}`, ['minter.address: is open to other machines']],
  [`${APP}listen: {address: off}`, ['listen.address: is off, and minter.address is not set']],
  [
    `${APP}callers: [{name: a, socket: /tmp/a.sock, tokens: true, orgs: [acme]}]\nlisten: {address: off}\nminter: {address: "localhost:0"}`,
    ['callers[0].socket: is for apps, but listen.address is off'],
  ],
  [
    `${APP}callers: [{name: a, minterSocket: /tmp/a.sock, tokens: true, orgs: [acme]}]`,
    ['callers[0].minterSocket: is for a sidecar, but minter.address is not set'],
  ],
  [
    `${APP}callers: [{name: a, tokens: true, minterSocket: /tmp/a.sock}, {name: b, socket: /tmp/a.sock}]\nminter: {address: "localhost:0"}`,
    ['callers[1].socket: is the socket of caller a'],
  ],
  [
    `${APP}minter: {tls: {certFile: ${certificate}, keyFile: ${key}}}`,
    ['minter.tls.certFile: is set, but minter.address is not'],
  ],
  [`${APP}minter: {keyFile: a.key}`, ['minter.keyFile: is for a sidecar']],
  ['minter: {url: "http://localhost:1"}', ['minter.url: needs one of minter.keyFile']],
  ['minter: {url: "http://minter.svc", keyFile: a.key}', ['minter.url: is plain http to another machine']],
  ['minter: {url: "https://user:hunter2@minter", keyFile: a.key}', ['minter.url: contains a user name or password']],
  ['minter: {url: "https://minter/v1", keyFile: a.key}', ['minter.url: has a path']],
  [
    'minter: {url: "http://localhost:1", keyFile: a.key, jwtFile: a.jwt}',
    ['minter.jwtFile: is set, and so is minter.keyFile'],
  ],
  ['minter: {url: "http://localhost:1", jwtFile: no.jwt}', ['minter.jwtFile: "']],
  [`minter: {url: "https://m", certFile: ${certificate}}`, ['minter.certFile: needs minter.certKeyFile']],
  [
    `minter: {url: "http://localhost:1", keyFile: a.key, caFile: ${certificate}}`,
    ['minter.caFile: needs an https minter.url'],
  ],
  [
    `${APP}minter: {url: "http://localhost:1", keyFile: a.key}\nappRoutes: ["POST /v2/links"]\nfleet: {store: "redis://localhost"}`,
    ['appId: is set, and', 'appSecretFile: is set, and', 'appRoutes: is set, and', 'fleet.store: is set, and'],
  ],
  [
    `${APP}${CALLERS}minter: {address: "localhost:0", url: "http://localhost:1", keyFile: a.key}`,
    ['minter.url: is set, and so is minter.address', 'appId: ', 'appSecretFile: '],
  ],
])('%s: refused', async (text, expected) => {
  const problems = await problemsOf(text)
  expect(problems).toEqual(expected.map((line) => expect.stringContaining(line.split(': ')[0] ?? '')))
  for (const [index, line] of expected.entries()) expect(problems[index]).toContain(line.replace(/"$/, ''))
  expect(problems.join()).not.toContain('hunter2')
})

test('the secret in the environment is refused beside minter.url, too', async () => {
  const text = 'minter: {url: "http://localhost:1", keyFile: a.key}'
  expect(await problemsOf(text, { OAP_APP_SECRET: 'x' })).toEqual([expect.stringContaining('appSecret: is set, and')])
})
