/** Tells the end of our certificates, and of the CAs of clients, before it comes. */

import { X509Certificate } from 'node:crypto'
import * as clock from '../clock.ts'
import type { Config } from '../config/schema.ts'
import type { PartWarnings } from '../part.ts'
import type { Part } from './reload.ts'

const PEM = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g
const SETTING = /^(?:listen\.tls|minter\.tls|minter|origin)\.(?:cert|certKey|key|clientCa)File\b/
const WEEK_MS = 7 * 86_400_000

interface Certificate {
  readonly setting: string
  readonly subject: string
  /** Milliseconds since the epoch. */
  readonly from: number
  readonly to: number
}

export class Certificates implements Part {
  #known: readonly Certificate[] = []
  /** Why the last reload was refused, one line each. */
  readonly #problems: () => readonly string[]

  constructor(problems: () => readonly string[]) {
    this.#problems = problems
  }

  /** A chain counts as a whole: an intermediate that has ended breaks it, too. */
  use({ listen, origin, minter }: Config): void {
    const files = {
      'listen.tls.certFile': listen.tls.certFile,
      'listen.tls.clientCaFile': listen.tls.clientCaFile,
      'origin.certFile': origin.certFile,
      'minter.tls.certFile': minter.tls.certFile,
      'minter.tls.clientCaFile': minter.tls.clientCaFile,
      'minter.certFile': minter.certFile,
    }
    this.#known = Object.entries(files).flatMap(([setting, file]) =>
      (file?.content.match(PEM) ?? []).map((pem) => {
        const { subject, validFrom, validTo } = new X509Certificate(pem)
        const [from, to] = [Date.parse(validFrom), Date.parse(validTo)]
        return { setting, subject: subject.replaceAll('\n', ', '), from, to }
      }),
    )
  }

  warnings(): PartWarnings {
    const refused = this.#problems().filter((line) => SETTING.test(line))
    if (refused.length > 0) {
      const text = `A changed certificate or key is not in use, but the one before it: ${refused.join('; ')}.`
      return { tls_certificate: text }
    }
    const ending = this.#known.filter(endsSoon).map(describeEnd)
    return ending.length === 0 ? {} : { tls_certificate: `${ending.join(' ')} Put new ones into their files.` }
  }
}

/** The last sixth of its life, but not more than a week: one of hours is renewed every few hours. */
function endsSoon({ from, to }: Certificate): boolean {
  return to - clock.day() < Math.min(WEEK_MS, (to - from) / 6)
}

function describeEnd({ setting, subject, to }: Certificate): string {
  return `The certificate "${subject}" of ${setting} ${to > clock.day() ? 'ends' : 'ended'} at ${new Date(to).toISOString()}.`
}
