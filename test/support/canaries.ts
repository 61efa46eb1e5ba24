/** Secret values, and the search for them in every form in which they could get out. */

import { randomBytes } from 'node:crypto'

/** Visible ASCII with characters that JSON, URLs and base64url escape. */
export function randomSecret(): string {
  return `s3cr+t/"\\%é:${randomBytes(12).toString('base64url')}?`
}

/** Letters that appear nowhere else. They are part of every token of one test, so that one search finds all tokens. */
export function randomMarker(): string {
  return `canary${randomBytes(9).toString('hex')}`
}

export interface CanaryHit {
  readonly canary: string
  readonly form: string
}

interface Needle extends CanaryHit {
  readonly bytes: Buffer
}

export class Canaries {
  readonly #needles: Needle[] = []

  /** A hit is reported by `name`, because a failing test must not print the value. */
  add(name: string, value: string): this {
    const texts = new Set<string>()
    for (const [form, text] of formsOf(value)) {
      if (!texts.has(text)) this.#needles.push({ canary: name, form, bytes: Buffer.from(text) })
      texts.add(text)
    }
    return this
  }

  /** Every canary in `haystack`, with the form in which it was found. */
  search(haystack: string | Uint8Array): CanaryHit[] {
    const bytes = typeof haystack === 'string' ? Buffer.from(haystack) : Buffer.from(haystack)
    return this.#needles.filter((needle) => bytes.includes(needle.bytes)).map(({ canary, form }) => ({ canary, form }))
  }
}

/** All secrets of a service. */
export function canariesOf(tokens: { readonly appSecret: string; readonly apiKey: string; readonly marker: string }) {
  const { appSecret, apiKey, marker } = tokens
  return new Canaries().add('App secret', appSecret).add('API key', apiKey).add('token', marker)
}

function formsOf(value: string): Map<string, string> {
  const bytes = Buffer.from(value)
  const hex = bytes.toString('hex')
  const forms = new Map<string, string>([
    ['plain', value],
    ['hex', hex],
    ['hex, upper case', hex.toUpperCase()],
    ['URL-escaped', encodeURIComponent(value)],
    ['URL-escaped, every byte', hex.replace(/../g, '%$&')],
    ['form-escaped', new URLSearchParams([['', value]]).toString().slice(1)],
    ['JSON-escaped', JSON.stringify(value).slice(1, -1)],
    ['JSON-escaped, slashes too', JSON.stringify(value).slice(1, -1).replaceAll('/', '\\/')],
    ['JSON-escaped twice', JSON.stringify(JSON.stringify(value)).slice(3, -3)],
    ['JSON-escaped, ASCII', escapeNonAscii(JSON.stringify(value).slice(1, -1))],
  ])
  for (const offset of [0, 1, 2]) {
    const base64 = base64Inside(bytes, offset)
    forms.set(`base64 at offset ${offset}`, base64)
    forms.set(`base64url at offset ${offset}`, base64.replaceAll('+', '-').replaceAll('/', '_'))
  }
  return forms
}

/**
 * The base64 of the value after `offset` other bytes, without the characters that also encode its neighbours:
 * `base64(id:secret)` contains the secret, but not `base64(secret)`.
 */
function base64Inside(bytes: Buffer, offset: number): string {
  const encoded = Buffer.concat([Buffer.alloc(offset), bytes])
    .toString('base64')
    .replaceAll('=', '')
  const first = Math.ceil((offset * 8) / 6)
  const last = Math.floor(((offset + bytes.length) * 8) / 6)
  return encoded.slice(first, last)
}

function escapeNonAscii(json: string): string {
  return json.replace(/[^\x20-\x7e]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
