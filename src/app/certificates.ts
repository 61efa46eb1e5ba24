/** Tells the end of our certificates, and of the CAs of clients, before it comes. */

import { X509Certificate } from 'node:crypto'
import * as clock from '../clock.ts'
import type { Config } from '../config/schema.ts'
import type { Part } from './reload.ts'

const PEM = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g
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

  /** A sentence about each that has ended, or ends soon. */
  get ending(): string[] {
    return this.#known.filter(endsSoon).map(describeEnd)
  }
}

/** The last sixth of its life, but not more than a week: one of hours is renewed every few hours. */
function endsSoon({ from, to }: Certificate): boolean {
  return to - clock.day() < Math.min(WEEK_MS, (to - from) / 6)
}

function describeEnd({ setting, subject, to }: Certificate): string {
  return `The certificate "${subject}" of ${setting} ${to > clock.day() ? 'ends' : 'ended'} at ${new Date(to).toISOString()}.`
}
