/** A name that one spawned process resolves to the present addresses of this record. */

import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** Runs in that process before the program. Every lookup of the name reads the record; other names resolve normally. */
const PRELOADED = `
import dns from 'node:dns'
import { readFileSync } from 'node:fs'
import { isIPv6 } from 'node:net'
const lookup = dns.lookup
dns.lookup = (name, options, callback) => {
  if (name !== process.env.RECORD_NAME) return lookup(name, options, callback)
  const found = readFileSync(process.env.RECORD_FILE, 'utf8').split(',')
    .map((address) => ({ address, family: isIPv6(address) ? 6 : 4 }))
  if (options.all) process.nextTick(callback, null, found)
  else process.nextTick(callback, null, found[0].address, found[0].family)
}
`

export class NameRecord implements AsyncDisposable {
  readonly name = 'service.test'
  /** Options of Node, before the program. */
  readonly nodeArgs: readonly string[] = ['--import', `data:text/javascript,${encodeURIComponent(PRELOADED)}`]
  readonly env: Readonly<Record<string, string>>
  readonly #folder: string
  readonly #file: string

  constructor(folder: string) {
    this.#folder = folder
    this.#file = join(folder, 'record')
    this.env = { RECORD_NAME: this.name, RECORD_FILE: this.#file }
  }

  async set(...addresses: string[]): Promise<void> {
    await writeFile(this.#file, addresses.join(','))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.#folder, { recursive: true })
  }
}

export async function openNameRecord(...addresses: string[]): Promise<NameRecord> {
  const record = new NameRecord(await mkdtemp(join(tmpdir(), 'oap-name-')))
  await record.set(...addresses)
  return record
}
