/** What an operator should read about an answer without a token beside its status: its own words, its clock, a remedy. */

import { fieldValue } from '../http1/field-list.ts'
import type { WholeResponse } from '../http1/response-parser.ts'
import { holdsSecret, type Secret } from '../secret.ts'
import { type AppKey, usesPrivateKey } from './app-key.ts'
import { memberOf, readJson, textOf } from './token-reply.ts'

export interface AskedWith {
  readonly key: AppKey
  /** Texts that the endpoint may give back, and nobody may see. */
  readonly secrets: readonly Secret[]
}

const MAX_WORDS_LENGTH = 200
/** A clock may be wrong by so much without a JWT being refused for it. */
const CLOCK_MS = 30_000
/** Changed by servers that decode Basic as a form. */
const FORM_CHARACTERS = /[+%:]/
const DECODES =
  'OAuth servers decode Basic credentials as a form (RFC 6749 §2.3.1), which changes "+", "%" and ":" in them: tokens.auth: form sends them so that they arrive.'

/** Undefined if there is nothing to add. */
export function noteOn(answer: WholeResponse, wallNowMs: number, { key, secrets }: AskedWith): string | undefined {
  const { status, fields } = answer
  const sentences: string[] = []
  const words = wordsIn(answer, secrets)
  if (words !== '') sentences.push(`It says: ${words}${/[.!?…]$/.test(words) ? '' : '.'}`)
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

/** `error` and `error_description` (RFC 6749 §5.2), what many services use in their place, or plain text. */
function wordsIn({ status, fields, content }: WholeResponse, secrets: readonly Secret[]): string {
  const reply = readJson(content)
  const [inner, errors] = [memberOf(reply, 'error'), memberOf(reply, 'errors')]
  const wordsOf = (teller: unknown) => WORDS.map((name) => memberOf(teller, name))
  const listed = Array.isArray(errors) ? errors.slice(0, 3).flatMap((each) => [each, ...wordsOf(each)]) : []
  const told = [...wordsOf(reply), ...wordsOf(inner), ...listed]
  // Of a success, the whole text may be the token.
  if (status >= 400 && PLAIN_TEXT.test(fieldValue(fields, 'content-type'))) told.push(textOf(content))
  const texts = told.flatMap((each) => (typeof each === 'string' ? [each.slice(0, MAX_READ_LENGTH)] : []))
  const text = [...new Set(texts)].filter((each) => !holdsSecret(each, secrets)).join(': ')
  // Two parts of a secret may meet.
  return holdsSecret(text, secrets) ? '' : shown(text)
}

const MAX_READ_LENGTH = 1_000
const PLAIN_TEXT = /^text\/plain\b/i
const WORDS = ['error', 'error_description', 'message', 'detail', 'reason']

/** Visible characters of one line. Long words with digits go: each may be a token that nobody here knows. */
function shown(text: string): string {
  const line = text.replaceAll(/[\p{C}\p{Z}]+/gu, ' ').trim()
  const plain = line.replaceAll(/[\w+/=.~-]{24,}/g, (word) => (/\d/.test(word) ? '…' : word))
  return [...plain].slice(0, MAX_WORDS_LENGTH).join('')
}
