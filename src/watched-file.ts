/** Files that may change while the program runs: reads them, and notices changes. */

import { hash } from 'node:crypto'
import { constants } from 'node:fs'
import { open, stat } from 'node:fs/promises'
import * as clock from './clock.ts'

export const MAX_FILE_BYTES = 64 * 1024
/** Between two looks. */
export const LOOK_MS = 2_000

/**
 * Calls `onChange` when one of the files has changed and all have stood unchanged for one look: an editor may still be writing.
 * It is called once soon after the start, too, because a file may have changed between its first read and the first look.
 */
export class FileWatch {
  readonly #paths: () => Iterable<string>
  readonly #onChange: () => Promise<void>
  readonly #timer: clock.Timer
  #isLooking = false
  #isClosed = false
  /** What the last look found, and what `onChange` was called for last. */
  #found: string | undefined
  #told: string | undefined

  constructor(paths: () => Iterable<string>, onChange: () => Promise<void>) {
    this.#paths = paths
    this.#onChange = onChange
    // Not `fs.watch`: it does not notice each change behind a symlink, or on a network.
    this.#timer = clock.every(LOOK_MS, () => void this.#look())
    void this.#look()
  }

  close(): void {
    this.#isClosed = true
    this.#timer.cancel()
  }

  async #look(): Promise<void> {
    if (this.#isLooking) return // a folder on a network that hangs must not collect looks
    this.#isLooking = true
    const states = await Promise.all(Array.from(this.#paths(), stateOf))
    const found = states.join('\n')
    const hasStood = found === this.#found
    this.#found = found
    if (hasStood && found !== this.#told && !this.#isClosed) {
      this.#told = found
      await this.#onChange()
    }
    this.#isLooking = false
  }
}

/** Differs after each change of the file, or of a symlink that leads to it. */
async function stateOf(path: string): Promise<string> {
  const found = await stat(path, { bigint: true }).catch(codeOf)
  if (typeof found === 'string') return `${path} ${found}`
  const { dev, ino, size, mtimeNs, ctimeNs } = found
  return [path, dev, ino, size, mtimeNs, ctimeNs].join(' ')
}

/** Tells two contents apart. */
export function digestOf(bytes: Uint8Array | string): string {
  return hash('sha256', bytes, 'base64')
}

/**
 * The message is a predicate that tells an operator what is wrong. It contains nothing from the file, and not the path: a secret
 * may stand where the path of its file belongs.
 */
export class FileUnreadable extends Error {}

/**
 * Reads a regular file of at most `maxBytes`, 64 KiB by default. `mode` has the permission bits.
 * @throws {FileUnreadable}
 */
export async function readRegularFile(
  path: string,
  maxBytes = MAX_FILE_BYTES,
): Promise<{ bytes: Buffer; mode: number }> {
  try {
    // Without O_NONBLOCK, opening a FIFO waits for a writer.
    await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
    const found = await file.stat()
    if (!found.isFile()) throw new FileUnreadable('is a folder, a pipe, a socket or a device: name a regular file')
    // Files in /proc tell no size. One byte more than there should be shows the end.
    const buffer = Buffer.allocUnsafeSlow(Math.min(found.size || MAX_FILE_BYTES, maxBytes) + 1)
    let length = 0
    for (let bytesRead = -1; bytesRead !== 0; length += bytesRead) ({ bytesRead } = await file.read(buffer, length))
    if (length > maxBytes) throw new FileUnreadable(`is larger than ${maxBytes / 1024} KiB`)
    return { bytes: buffer.subarray(0, length), mode: found.mode }
  } catch (error) {
    if (error instanceof FileUnreadable) throw error
    throw new FileUnreadable(explain(codeOf(error)), { cause: error })
  }
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown error'
}

function explain(code: string): string {
  if (code === 'ENOENT' || code === 'ENOTDIR') return `does not exist (${code})`
  if (code !== 'EACCES' && code !== 'EPERM') return `cannot be read (${code})`
  return `cannot be read by uid ${process.getuid?.() ?? '?'} (${code}): let that user read it`
}
