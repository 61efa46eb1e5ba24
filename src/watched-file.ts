/** Reads a file while the program runs: when it changes, and on demand. */

import { hash } from 'node:crypto'
import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import { isAbsolute, resolve } from 'node:path'

export interface WatchedFileOptions {
  readonly path: string
  /**
   * Called with the content when it differs from the last one and two looks in a row found it, after a problem with reading
   * it, and after every `reload`. The first content counts as a change unless it is `known`. May throw an error for the operator:
   * `onProblem` gets its message.
   */
  readonly onContent: (bytes: Buffer) => void
  /** Called once per problem, and again if the problem comes back later. Must not throw. */
  readonly onProblem: (text: string) => void
  /** The digest of the content that the owner has read before. */
  readonly known?: string | undefined
  readonly maxBytes?: number
  readonly intervalMs?: number
}

export const MAX_FILE_BYTES = 64 * 1024
/** Between two looks. */
export const LOOK_MS = 2_000

/** What a read finds: the content, or why there is none. */
interface Found {
  readonly digest?: string
  readonly bytes?: Buffer
  readonly problem?: string
}

export class WatchedFile {
  /** Of the last content. */
  problem: string | undefined
  readonly #options: WatchedFileOptions
  readonly #timer: NodeJS.Timeout
  /** One read at a time: the running one may have read the former content. */
  #reading = Promise.resolve()
  #isLooking = false
  /** What the owner knows. */
  #told: Found | undefined
  /** What the last look found. An editor may still be writing it. */
  #found: Found | undefined
  #isClosed = false

  constructor(options: WatchedFileOptions) {
    const { known, intervalMs = LOOK_MS } = options
    this.#options = options
    this.#told = known === undefined ? undefined : { digest: known }
    // A look reads the file, which is small: `fs.watchFile` misses a change that comes before its first `stat`.
    this.#timer = setInterval(() => this.#look(), intervalMs).unref()
    this.#look()
  }

  /** Returns true if the owner knows this content, or with undefined that the file cannot be read. */
  stands(digest: string | undefined): boolean {
    return this.#told !== undefined && this.#told.digest === digest
  }

  /** Reads the file now. Resolves after `onContent` or `onProblem` was called. Never rejects. */
  reload(): Promise<void> {
    this.#reading = this.#reading.then(() => this.#read(true))
    return this.#reading
  }

  close(): void {
    this.#isClosed = true
    clearInterval(this.#timer)
  }

  /** A folder on a network that hangs must not collect looks. */
  #look(): void {
    if (this.#isLooking) return
    this.#isLooking = true
    this.#reading = this.#reading
      .then(() => this.#read(false))
      .then(() => {
        this.#isLooking = false
      })
  }

  async #read(isAsked: boolean): Promise<void> {
    const { path, maxBytes } = this.#options
    const found = await find(path, maxBytes)
    if (this.#isClosed) return
    const hasStood = isEqual(found, this.#found)
    this.#found = found
    if (isAsked || (hasStood && !isEqual(found, this.#told))) this.#tell(found)
  }

  #tell(found: Found): void {
    const { onContent, onProblem } = this.#options
    this.#told = found
    let { problem } = found
    try {
      if (found.bytes !== undefined) onContent(found.bytes)
    } catch (error) {
      problem = messageOf(error)
    }
    if (problem !== undefined && problem !== this.problem) onProblem(problem)
    this.problem = problem
  }
}

async function find(path: string, maxBytes: number | undefined): Promise<Found> {
  try {
    const { bytes } = await readRegularFile(path, maxBytes)
    return { bytes, digest: digestOf(bytes) }
  } catch (error) {
    return { problem: messageOf(error) }
  }
}

function isEqual(one: Found, other: Found | undefined): boolean {
  return one.digest === other?.digest && one.problem === other?.problem
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : 'cannot be read'
}

/** Tells two contents apart. */
export function digestOf(bytes: Uint8Array | string): string {
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
