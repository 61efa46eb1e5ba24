/** The settings of minters and sidecars: what contradicts itself. */

import { expect, test } from 'vitest'
import { certificateFiles } from '../../support/certificates.ts'
import { GOOD, loadFile, problemsOf } from '../config/refusal.ts'

const { certificate, key } = certificateFiles('localhost')
const FILES = {
  'a.key': 'a-key-0123456789',
  'no.jwt': 'not-a-JWT',
  'a.jwt': 'eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl',
}

/** A sidecar has no App. */
const NO_APP = { OAP_BASE_URL: GOOD.OAP_BASE_URL }
const envOf = (text: string) => (text.startsWith('minter: {url') ? NO_APP : GOOD)

const CALLERS = 'callers: [{name: a, keyFiles: [a.key], tokens: true, orgs: [acme]}]\n'

test.each([
  [`${CALLERS}minter: {address: "localhost:0"}`],
  [`${CALLERS}minter: {address: "localhost:0"}\nlisten: {address: off}`],
  [`${CALLERS}minter: {address: "unix:/tmp/minter.sock"}`],
  [`${CALLERS}minter: {address: "0.0.0.0:0", tls: {certFile: ${certificate}, keyFile: ${key}}}`],
  [`callers: [{name: a, minterSocket: /tmp/a.sock, tokens: true, orgs: [acme]}]\nminter: {address: "localhost:0"}`],
  ['minter: {url: "http://localhost:1", keyFile: a.key}'],
  ['minter: {url: "http://[::1]:1", jwtFile: a.jwt}'],
  ['minter: {url: "unix:/tmp/minter.sock"}'],
  [`minter: {url: "https://minter.svc:8443", certFile: ${certificate}, certKeyFile: ${key}, caFile: ${certificate}}`],
])('%s', async (text) => {
  await expect(loadFile(text, FILES, envOf(text))).resolves.toBeDefined()
})

test.each<[string, string[]]>([
  [`minter: {address: "localhost:0"}`, ['minter.address: needs a caller with tokens: true']],
  [`${CALLERS}minter: {address: "0.0.0.0:0"}`, ['minter.address: is open to other machines']],
  [`listen: {address: off}`, ['listen.address: is off, and minter.address is not set']],
  [
    `callers: [{name: a, socket: /tmp/a.sock, tokens: true, orgs: [acme]}]\nlisten: {address: off}\nminter: {address: "localhost:0"}`,
    ['callers[0].socket: is for apps, but listen.address is off'],
  ],
  [
    `callers: [{name: a, minterSocket: /tmp/a.sock, tokens: true, orgs: [acme]}]`,
    ['callers[0].minterSocket: is for a sidecar, but minter.address is not set'],
  ],
  [
    `callers: [{name: a, tokens: true, minterSocket: /tmp/a.sock}, {name: b, socket: /tmp/a.sock}]\nminter: {address: "localhost:0"}`,
    ['callers[1].socket: is the socket of caller a'],
  ],
  [
    `minter: {tls: {certFile: ${certificate}, keyFile: ${key}}}`,
    ['minter.tls.certFile: is set, but minter.address is not'],
  ],
  [`minter: {keyFile: a.key}`, ['minter.keyFile: is for a sidecar']],
  ['minter: {url: "http://localhost:1"}', ['minter.url: needs one of minter.keyFile']],
  ['minter: {url: "http://minter.svc", keyFile: a.key}', ['minter.url: is plain http to another machine']],
  ['minter: {url: "https://user:hunter2@minter", keyFile: a.key}', ['minter.url: contains a user name or password']],
  ['minter: {url: "https://minter/v1", keyFile: a.key}', ['minter.url: has a path']],
  [
    'minter: {url: "http://localhost:1", keyFile: a.key, jwtFile: a.jwt}',
    ['minter.jwtFile: is set, and so is minter.keyFile'],
  ],
  ['minter: {url: "http://localhost:1", jwtFile: no.jwt}', ['minter.jwtFile: holds no signed JWT']],
  [`minter: {url: "https://m", certFile: ${certificate}}`, ['minter.certFile: needs minter.certKeyFile']],
  [
    `minter: {url: "http://localhost:1", keyFile: a.key, caFile: ${certificate}}`,
    ['minter.caFile: needs an https minter.url'],
  ],
  [
    `appRoutes: ["POST /v2/links"]\nfleet: {store: "redis://localhost"}\nminter: {url: "http://localhost:1", keyFile: a.key}`,
    ['appId: is set, and', 'appSecret: is set, and', 'appRoutes: is set, and', 'fleet.store: is set, and'],
  ],
  [
    `${CALLERS}minter: {address: "localhost:0", url: "http://localhost:1", keyFile: a.key}`,
    ['minter.url: is set, and so is minter.address', 'appId: ', 'appSecret: '],
  ],
])('%s: refused', async (text, expected) => {
  const lines = await problemsOf(text, FILES, envOf(text))
  const problems = lines.map((line) => line.replace(/ \([^)]*\)/, ''))
  expect(problems).toEqual(expected.map((line) => expect.stringContaining(line)))
  expect(problems.join()).not.toContain('hunter2')
})
