/** Reads a file while the program runs: when it changes, and on demand. */

import { hash } from 'node:crypto'
import { constants, unwatchFile, watchFile } from 'node:fs'
import { open } from 'node:fs/promises'
import { isAbsolute, resolve } from 'node:path'

export interface WatchedFileOptions {
  readonly path: string
  /**
   * Called with the content when it differs from the last one, after a problem with reading it, and after every `reload`. The
   * first read counts as a change unless the content is `known`. May throw an error for the operator: `onProblem` gets its message.
   */
  readonly onContent: (bytes: Buffer) => void
  /** Called once per problem, and again if the problem comes back later. Must not throw. */
  readonly onProblem: (text: string) => void
  /** The digest of the content that the owner has read before. */
  readonly known?: string | undefined
  readonly maxBytes?: number
  readonly intervalMs?: number
}

const MAX_FILE_BYTES = 64 * 1024
const INTERVAL_MS = 2_000

export class WatchedFile {
  /** Of the last read. */
  problem: string | undefined
  readonly #options: WatchedFileOptions
  readonly #onChange = () => void this.#next(false)
  #reading = Promise.resolve()
  #digest: string | undefined
  #isClosed = false

  constructor(options: WatchedFileOptions) {
    this.#options = options
    this.#digest = options.known
    // A poll of `stat`, which follows symlinks: it sees a link that was swapped, and works on network mounts.
    watchFile(options.path, { interval: options.intervalMs ?? INTERVAL_MS, persistent: false }, this.#onChange)
    this.#onChange()
  }

  /** Reads the file now. Resolves after `onContent` or `onProblem` was called. Never rejects. */
  reload(): Promise<void> {
    return this.#next(true)
  }

  close(): void {
    this.#isClosed = true
    unwatchFile(this.#options.path, this.#onChange)
  }

  /** One read at a time: the running one may have read the former content. */
  #next(isAskedFor: boolean): Promise<void> {
    this.#reading = this.#reading.then(() => this.#read(isAskedFor))
    return this.#reading
  }

  async #read(isAskedFor: boolean): Promise<void> {
    const { path, maxBytes, onContent, onProblem } = this.#options
    const known = this.#digest
    this.#digest = undefined // stays so if the read fails: then the same content counts as a change
    try {
      const { bytes } = await readRegularFile(path, maxBytes)
      this.#digest = digestOf(bytes)
      if (this.#isClosed || (!isAskedFor && this.#digest === known)) return
      onContent(bytes)
      this.problem = undefined
    } catch (error) {
      const problem = error instanceof Error ? error.message : 'cannot be read'
      if (!this.#isClosed && problem !== this.problem) onProblem(problem)
      this.problem = problem
    }
  }
}

/** Tells two contents apart. */
export function digestOf(bytes: Uint8Array): string {
  return hash('sha256', bytes, 'base64')
}

/** The message explains the problem to an operator. It never contains anything from the file. */
export class FileUnreadable extends Error {}

/**
 * Reads a regular file of at most `maxBytes`, 64 KiB by default. `mode` has the permission bits.
 * @throws {FileUnreadable}
 */
export async function readRegularFile(
  path: string,
  maxBytes = MAX_FILE_BYTES,
): Promise<{ bytes: Buffer; mode: number }> {
  const named = isAbsolute(path) ? path : `${path} (${resolve(path)})`
  try {
    // Without O_NONBLOCK, opening a FIFO waits for a writer.
    await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
    const found = await file.stat()
    if (!found.isFile()) throw new FileUnreadable('is a folder, a pipe, a socket or a device: name a regular file')
    const buffer = Buffer.allocUnsafeSlow(maxBytes + 1)
    let length = 0
    for (let bytesRead = -1; bytesRead !== 0; length += bytesRead) ({ bytesRead } = await file.read(buffer, length))
    if (length > maxBytes) throw new FileUnreadable(`is larger than ${maxBytes / 1024} KiB`)
    return { bytes: Buffer.from(buffer.subarray(0, length)), mode: found.mode }
  } catch (error) {
    throw new FileUnreadable(`${named} ${explain(error)}`, { cause: error })
  }
}

function explain(error: unknown): string {
  if (error instanceof FileUnreadable) return error.message
  const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown error'
  if (code === 'ENOENT' || code === 'ENOTDIR') return `does not exist (${code})`
  if (code !== 'EACCES' && code !== 'EPERM') return `cannot be read (${code})`
  return `cannot be read by uid ${process.getuid?.() ?? '?'} (${code}): let that user read it`
}
