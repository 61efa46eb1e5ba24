/** What an operator should read about a refusal of the token endpoint beside its status: its own words, its clock, a remedy. */

import { fieldValue } from '../http1/field-list.ts'
import type { WholeResponse } from '../http1/response-parser.ts'
import { holdsSecret, type Secret } from '../secret.ts'
import { type AppKey, usesPrivateKey } from './app-key.ts'
import { memberOf, readJson } from './token-reply.ts'

export interface AskedWith {
  readonly key: AppKey
  /** Texts that the endpoint may give back, and nobody may see. */
  readonly secrets: readonly Secret[]
}

const MAX_WORDS_LENGTH = 200
const MAX_READ_LENGTH = 1_000
/** A clock may be wrong by so much without a JWT being refused for it. */
const CLOCK_MS = 30_000
/** Changed by servers that decode Basic as a form. */
const FORM_CHARACTERS = /[+%:]/
const DECODES =
  'OAuth servers decode Basic credentials as a form (RFC 6749 §2.3.1), which changes "+", "%" and ":" in them: tokens.auth: form sends them so that they arrive.'

/** Undefined if there is nothing to add. */
export function noteOn(answer: WholeResponse, wallNowMs: number, { key, secrets }: AskedWith): string | undefined {
  const { status, fields, content } = answer
  if (status < 400) return undefined
  const sentences: string[] = []
  const words = wordsIn(content, secrets)
  if (words !== '') sentences.push(`It says: ${words}`)
  if (status === 401 || status === 400) {
    const aheadMs = Date.parse(fieldValue(fields, 'date')) - wallNowMs
    if (usesPrivateKey(key.auth) && Math.abs(aheadMs) > CLOCK_MS) {
      const side = aheadMs > 0 ? 'behind' : 'ahead of'
      sentences.push(
        `The clock of this machine is ${Math.round(Math.abs(aheadMs) / 1_000)} s ${side} that of the endpoint.`,
      )
    }
    if (key.auth === 'basic' && FORM_CHARACTERS.test(key.secret.reveal())) sentences.push(DECODES)
  }
  return sentences.length === 0 ? undefined : sentences.join(' ')
}

/** `error` and `error_description` (RFC 6749 §5.2), and `message`, which many services use. */
function wordsIn(content: Buffer, secrets: readonly Secret[]): string {
  const reply = readJson(content)
  const inner = memberOf(reply, 'error')
  const told = [inner, memberOf(reply, 'error_description'), memberOf(reply, 'message'), memberOf(inner, 'message')]
  const text = told.filter((each) => typeof each === 'string').join(': ')
  return holdsSecret(text.slice(0, MAX_READ_LENGTH), secrets) ? '' : shown(text.slice(0, MAX_READ_LENGTH))
}

/** Visible characters of one line. Long words with digits go: each may be a token that nobody here knows. */
function shown(text: string): string {
  const line = text.replaceAll(/[\p{C}\p{Z}]+/gu, ' ').trim()
  const plain = line.replaceAll(/[\w+/=.~-]{24,}/g, (word) => (/\d/.test(word) ? '…' : word))
  return [...plain].slice(0, MAX_WORDS_LENGTH).join('')
}
