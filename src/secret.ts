/** A value that no log, error, inspector or serializer can print: only `reveal()` gives it away. */

import { unescape as percentDecoded } from 'node:querystring'
import { inspect } from 'node:util'

const MASK = '[redacted]'

/** Base of every object that holds a secret. Every way to print it gives the mask. */
export abstract class Redacted {
  toString(): string {
    return MASK
  }

  toJSON(): string {
    return MASK
  }

  [inspect.custom](): string {
    return MASK
  }
}

/** Each call of `reveal` is a place where a wire format needs the value: a search for it finds all of them. */
export class Secret extends Redacted {
  readonly #value: string

  constructor(value: string) {
    super()
    this.#value = value
  }

  reveal(): string {
    return this.#value
  }

  equals(other: Secret): boolean {
    return this.#value === other.#value
  }
}

/** A part of this length counts as the whole: a text may be cut, or its lines joined in another way. */
const PART_CHARACTERS = 16
/** A shorter one would be found in words that do not mean it. */
const LEAST_CHARACTERS = 4

/** True if the text repeats one of them, in any of the spellings in which a server may give a secret back. */
export function holdsSecret(text: string, secrets: readonly Secret[]): boolean {
  const readings = readingsOf(text)
  return secrets.some((secret) => {
    const bytes = Buffer.from(secret.reveal().replace(/^(?:Basic|Bearer) /, ''))
    // Base64 depends on what stands before; its first and last characters hold other bits, too.
    const base64 = [0, 1, 2].map((offset) => {
      const whole = Buffer.concat([Buffer.alloc(offset), bytes]).toString('base64')
      return whole.slice(Math.ceil((offset * 4) / 3), Math.floor(((offset + bytes.length) * 4) / 3))
    })
    return [bytes.toString(), bytes.toString('hex'), ...base64].map(bare).some((spelling) => {
      return spelling.length >= LEAST_CHARACTERS && readings.some((reading) => hasPart(reading, spelling))
    })
  })
}

function hasPart(reading: string, spelling: string): boolean {
  const last = Math.max(0, spelling.length - PART_CHARACTERS)
  for (let start = 0; start < last; start += PART_CHARACTERS / 2) {
    if (reading.includes(spelling.slice(start, start + PART_CHARACTERS))) return true
  }
  return reading.includes(spelling.slice(last))
}

const DECODERS: readonly ((text: string) => string)[] = [
  percentDecoded,
  (text) => text.replaceAll('+', ' '),
  (text) => text.replace(/\\u([\da-f]{4})/gi, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16))),
  (text) =>
    text.replace(
      /&(?:#(\d{1,6})|#x([\da-f]{1,5})|amp|lt|gt|quot|apos);/gi,
      (entity, decimal, hex) =>
        NAMED[entity.toLowerCase()] ??
        String.fromCodePoint(Number.parseInt(decimal ?? hex, decimal === undefined ? 16 : 10)),
    ),
]
const NAMED: Readonly<Record<string, string>> = { '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&apos;': "'" }
/** A text in a text in a text. */
const LAYERS = 3

function readingsOf(text: string): string[] {
  const readings = new Set([text])
  for (let layer = 0; layer < LAYERS; layer++) {
    for (const reading of [...readings]) for (const decode of DECODERS) readings.add(decode(reading))
  }
  return [...new Set([...readings].map(bare))]
}

/** Without case, escapes and white space; base64url as base64. */
function bare(text: string): string {
  return text
    .toLowerCase()
    .replaceAll('-', '+')
    .replaceAll('_', '/')
    .replace(/[\s\\\p{C}=]+/gu, '')
}

/** Fields of a request whose values nobody may see, by name. */
export type SecretHeaders = Readonly<Record<string, { readonly content: Secret }>>

/** Names and values in turn. */
export function revealHeaders(headers: SecretHeaders = {}): string[] {
  return Object.entries(headers).flatMap(([name, { content }]) => [name, content.reveal()])
}
