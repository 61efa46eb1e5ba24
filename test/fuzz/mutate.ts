/** Small damage to a message, as a broken or hostile peer would do it: flips, splices, repeated and strange lines. */

import { Random } from '../support/seed.ts'

type Mutation = (text: string, random: Random) => string

const ODD_OCTETS = [...'\0\r\n\t :,;=%/\\#_.*?&"\'()<>@[]{}+-0\x0b\x0c\x1f\x7f\x80\xa0\xe9\xff']

const ODD_LINES = [
  'Transfer-Encoding: chunked',
  'Transfer-Encoding: gzip, chunked',
  'Transfer-Encoding : chunked',
  'Transfer_Encoding: chunked',
  'Content-Length: 0',
  'Content-Length: 5',
  'Content-Length: 00000000000000003',
  'Content-Length: -1',
  'Content-Length: 9007199254740993',
  'Connection: close',
  'Connection: keep-alive',
  'Connection: authorization, x-org-id, host, via, content-length',
  'Connection: upgrade',
  'Upgrade: websocket',
  'Upgrade: h2c',
  'Keep-Alive: timeout=1, max=1',
  'Expect: 100-continue',
  'Host: localhost',
  'Host: evil.example',
  'Authorization: Bearer forged',
  'Proxy-Authorization: Basic forged',
  'X-Org-Id: another',
  'X_Org_Id: another',
  'x-org-id: a, b',
  'Origin: https://evil.example',
  'Sec-Fetch-Site: cross-site',
  'Forwarded: for=192.0.2.1',
  'Via: 1.1 org-access-proxy',
  'X-Request-Id: \xe9',
  'TE: trailers',
  'Trailer: authorization',
  '__proto__: x',
  'constructor: x',
  ' folded',
  '\tfolded',
  ':',
  'X-Empty:',
  'Set-Cookie: a=b; Path=/',
  'Location: //evil.example/',
  'Content-Encoding: gzip',
  `X-Long: ${'a'.repeat(17_000)}`,
]

const STRUCTURAL: readonly Mutation[] = [
  (text, random) => edited(text, random, (line) => [line, line]),
  (text, random) => edited(text, random, () => []),
  (text, random) => edited(text, random, (line) => [line, random.pick(ODD_LINES)]),
  (text, random) => edited(text, random, (line) => [line, random.pick(ODD_LINES)]),
  (text, random) => edited(text, random, (line) => [random.pick(ODD_LINES), line]),
  (text, random) => edited(text, random, (line) => [swapCase(line)]),
  (text, random) => edited(text, random, (line) => [line.replace(/\d+/, () => oddNumber(random))]),
  (text, random) => edited(text, random, (line) => [line.replace(': ', random.pick([':', ' : ', ':\t', ':\0', '::']))]),
  (text, random) =>
    text.replace(/\r\n/g, (end) => (random.chance(0.05) ? random.pick(['\n', '\r', '\r\n\r\n', '']) : end)),
]

const LOCAL: readonly Mutation[] = [
  (text, random) => replaced(text, random, 1, (octets) => flipBit(octets, random)),
  (text, random) => replaced(text, random, 1, () => random.pick(ODD_OCTETS)),
  (text, random) => replaced(text, random, 0, () => random.pick(ODD_OCTETS)),
  (text, random) => replaced(text, random, random.integer(1, 12), () => ''),
  (text, random) => replaced(text, random, random.integer(1, 40), (octets) => octets + octets),
]

/** Of one case: what it is made from, whatever ran before it. */
export function randomFor(seed: number, index: number): Random {
  return new Random(seed).numbered(index)
}

/** The message with one to four kinds of damage; `others` are messages that parts may come from. */
export function mutate(message: string, others: readonly string[], random: Random): string {
  let text = message
  for (let left = random.integer(1, 4); left > 0; left--) {
    const kind = random.next()
    if (kind < 0.5) text = random.pick(STRUCTURAL)(text, random)
    else if (kind < 0.85) text = random.pick(LOCAL)(text, random)
    else if (kind < 0.95) text = spliced(text, random.pick(others), random)
    else text = text.slice(0, random.integer(0, text.length))
  }
  return text
}

function edited(text: string, random: Random, edit: (line: string) => string[]): string {
  const lines = text.split('\r\n')
  const at = random.integer(0, lines.length - 1)
  return lines.flatMap((line, i) => (i === at ? edit(line) : [line])).join('\r\n')
}

function replaced(text: string, random: Random, length: number, replace: (octets: string) => string): string {
  const at = random.integer(0, Math.max(0, text.length - length))
  return text.slice(0, at) + replace(text.slice(at, at + length)) + text.slice(at + length)
}

function spliced(text: string, other: string, random: Random): string {
  return text.slice(0, random.integer(0, text.length)) + other.slice(random.integer(0, other.length))
}

function flipBit(octet: string, random: Random): string {
  return octet === '' ? '' : String.fromCharCode(octet.charCodeAt(0) ^ (1 << random.integer(0, 7)))
}

function swapCase(line: string): string {
  return line === line.toLowerCase() ? line.toUpperCase() : line.toLowerCase()
}

function oddNumber(random: Random): string {
  return random.pick([
    '0',
    '1',
    '-1',
    '+3',
    '0x10',
    '007',
    '99',
    '101',
    '204',
    '304',
    '600',
    '999',
    '1e3',
    '4294967297',
  ])
}
