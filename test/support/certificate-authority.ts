/** A certificate authority made by openssl, for certificates that have to be new: short-lived ones, and those of clients. */

import { execFileSync } from 'node:child_process'
import { generateKeyPairSync } from 'node:crypto'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** PEM; the certificate has its chain behind it. */
export type Issued = Readonly<Record<'cert' | 'key', string>>

export interface IssueOptions {
  /** Such as `URI:spiffe://example.org/ns/jobs/sa/batch,DNS:batch.jobs.svc`. Empty: a common name alone. */
  readonly names: string
  /** From now on; negative for a certificate that has ended. */
  readonly lifeMs?: number
  /** It began so long ago. */
  readonly ageMs?: number
}

const DAY_MS = 24 * 3_600_000
const MONTH_MS = 30 * DAY_MS

export class CertificateAuthority {
  readonly cert: string
  readonly #folder: string
  readonly #chain: string

  /** `folder` must exist. `issuer` makes this an intermediate, which lives for `lifeMs`. */
  constructor(folder: string, name: string, issuer?: CertificateAuthority, lifeMs = MONTH_MS) {
    this.#folder = join(folder, name)
    mkdirSync(this.#folder)
    this.#newKey('ca')
    if (issuer === undefined) {
      this.#openssl('req', '-x509', '-new', '-key', 'ca.key', '-subj', `/CN=${name}`, '-days', '30', '-out', 'ca.pem')
    } else {
      this.#request('ca', name, 'basicConstraints=critical,CA:TRUE')
      issuer.#sign(join(this.#folder, 'ca'), lifeMs)
    }
    this.cert = this.#read('ca.pem')
    this.#chain = issuer === undefined ? '' : this.cert
    writeFileSync(join(this.#folder, 'index.txt'), '')
    writeFileSync(join(this.#folder, 'serial'), '01\n')
    const section = `new_certs_dir=${this.#folder}\ndatabase=${this.#folder}/index.txt\nserial=${this.#folder}/serial`
    const rules = 'default_md=sha256\npolicy=p\ncopy_extensions=copyall\nunique_subject=no\n[p]\ncommonName=supplied\n'
    writeFileSync(join(this.#folder, 'ca.cnf'), `[ca]\ndefault_ca=d\n[d]\n${section}\n${rules}`)
  }

  issue({ names, lifeMs = MONTH_MS, ageMs = DAY_MS }: IssueOptions): Issued {
    this.#newKey('leaf')
    this.#request('leaf', 'leaf', names === '' ? undefined : `subjectAltName=${names}`)
    this.#sign(join(this.#folder, 'leaf'), lifeMs, ageMs)
    return { cert: this.#read('leaf.pem') + this.#chain, key: this.#read('leaf.key') }
  }

  #newKey(name: string): void {
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
    writeFileSync(join(this.#folder, `${name}.key`), privateKey.export({ format: 'pem', type: 'pkcs8' }))
  }

  #request(name: string, commonName: string, extension: string | undefined): void {
    const subject = ['-subj', `/CN=${commonName}`, ...(extension === undefined ? [] : ['-addext', extension])]
    this.#openssl('req', '-new', '-key', `${name}.key`, ...subject, '-out', `${name}.csr`)
  }

  #sign(path: string, lifeMs: number, ageMs = DAY_MS): void {
    const now = Date.now()
    const dates = ['-startdate', asn1Time(Math.min(now, now + lifeMs) - ageMs), '-enddate', asn1Time(now + lifeMs)]
    const files = ['-cert', 'ca.pem', '-keyfile', 'ca.key', '-in', `${path}.csr`, '-out', `${path}.pem`]
    this.#openssl('ca', '-batch', '-notext', '-config', 'ca.cnf', ...files, ...dates)
  }

  #openssl(...args: readonly string[]): void {
    execFileSync('openssl', args, { cwd: this.#folder, stdio: 'ignore' })
  }

  #read(name: string): string {
    return readFileSync(join(this.#folder, name), 'latin1')
  }
}

/** `20261122235959Z`. */
function asn1Time(at: number): string {
  return `${new Date(at).toISOString().replace(/\D/g, '').slice(0, 14)}Z`
}
