/**
 * Reads a file while the program runs: whenever it changes, once a minute, and on demand.
 *
 * The watch is on the file's directory. Kubernetes replaces a mounted file by renaming a symlink in its directory; a watch
 * on the file itself never fires again after the first such swap. The poll finds changes that no watch reports, for
 * example behind a symlink into another directory or on a network mount.
 */

import { constants, type FSWatcher, watch } from 'node:fs'
import { open, realpath, stat } from 'node:fs/promises'
import { basename, dirname, isAbsolute, resolve } from 'node:path'

export interface FileContent {
  readonly bytes: Buffer
  /** Permission bits, as in `stat`. */
  readonly mode: number
}

/** The message explains the problem to an operator. It never contains anything from the file. */
export class FileUnreadable extends Error {
  override readonly name = 'FileUnreadable'
}

export interface WatchedFileOptions {
  readonly path: string
  /**
   * Called with the content when it differs from the last one, after a problem with reading it, and after every `reload`. The
   * first read counts as a change unless the content equals `known`. May throw an error for the operator: `onProblem` gets its message.
   */
  readonly onContent: (bytes: Buffer, isAskedFor: boolean) => void
  /** Called once per problem, and again if the problem comes back later. Must not throw. */
  readonly onProblem: (text: string) => void
  /** The content that the owner has read before. */
  readonly known?: Uint8Array | undefined
  readonly pollMs?: number
  /** The directory must be quiet for this long before the file is read. A write in several steps counts as one change. */
  readonly settleMs?: number
  readonly maxBytes?: number
  readonly timeoutMs?: number
  readonly read?: (path: string, maxBytes?: number) => Promise<FileContent>
}

const MAX_FILE_BYTES = 64 * 1024
const CHUNK_BYTES = 16 * 1024
const POLL_MS = 60_000
const SETTLE_MS = 100
/** In a directory that is never quiet, the file is read after this many times `settleMs`. */
const MAX_POSTPONEMENTS = 10
const TIMEOUT_MS = 2_000
const TICKS = 20

export class WatchedFile {
  readonly #options: WatchedFileOptions
  readonly #poll: NodeJS.Timeout
  #watcher: FSWatcher | undefined
  /** Identity of the watched directory. A directory that was deleted and made again has another one. */
  #watched: string | undefined
  #settling: NodeJS.Timeout | undefined
  #postponements = 0
  #lastBytes: Uint8Array | undefined
  #readProblem: string | undefined
  #contentProblem: string | undefined
  readonly #attempts = new Reruns((isAskedFor) => this.#readOnce(isAskedFor))
  #isStalled = false
  #isClosed = false

  constructor(options: WatchedFileOptions) {
    this.#options = options
    this.#lastBytes = options.known
    this.#poll = setInterval(() => this.#attempt(false), options.pollMs ?? POLL_MS).unref()
    this.#attempt(false)
  }

  /**
   * Reads the file now. Resolves after `onContent` or `onProblem` was called, at the latest two read timeouts from now: an
   * attempt that is under way may have read the old content already, so a new one follows it. Never rejects.
   */
  reload(): Promise<void> {
    return this.#attempt(true)
  }

  close(): void {
    this.#isClosed = true
    clearInterval(this.#poll)
    clearTimeout(this.#settling)
    this.#dropWatcher()
  }

  #attempt(isAskedFor: boolean): Promise<void> {
    return this.#isClosed ? Promise.resolve() : this.#attempts.next(isAskedFor)
  }

  async #readOnce(isAskedFor: boolean): Promise<void> {
    if (this.#isClosed) return
    let bytes: Buffer
    try {
      bytes = (await this.#read()).bytes
    } catch (error) {
      this.#readProblem = this.#report(error, this.#readProblem)
      return
    }
    if (this.#isClosed) return
    // After `onProblem`, the owner has to learn that the file is back, even with the same content as before.
    const isBack = this.#readProblem !== undefined
    this.#readProblem = undefined
    const isChanged = isBack || this.#lastBytes === undefined || !bytes.equals(this.#lastBytes)
    if (isChanged) this.#contentProblem = undefined
    this.#lastBytes = bytes
    if (!isChanged && !isAskedFor) return
    try {
      this.#options.onContent(bytes, isAskedFor)
    } catch (error) {
      this.#contentProblem = this.#report(error, this.#contentProblem)
    }
  }

  async #read(): Promise<FileContent> {
    // A read from a stalled mount holds one of the four threads of libuv's pool, which DNS lookups need too. So one per file.
    if (this.#isStalled) throw new FileUnreadable(STALLED)
    const { path, maxBytes, timeoutMs, read = readUntimed } = this.#options
    // Watch first, then read: a change in between is either read or reported by the watch.
    const reading = this.#watchDirectory().then(() => read(path, maxBytes))
    return await inTime(reading, timeoutMs, () => {
      this.#isStalled = true
      const retry = () => {
        this.#isStalled = false
        this.#attempt(false)
      }
      reading.then(retry, retry)
    })
  }

  /** Calls `onProblem` unless the problem is the same as `before`, and returns the problem. */
  #report(error: unknown, before: string | undefined): string {
    const problem = error instanceof Error ? error.message : 'cannot be read'
    if (!this.#isClosed && problem !== before) this.#options.onProblem(problem)
    return problem
  }

  /** Watches the directory, or the new one if it was replaced. If that fails, the poll remains. */
  async #watchDirectory(): Promise<void> {
    const directory = dirname(this.#options.path)
    const found = await identityOf(directory)
    if (this.#isClosed || (found !== undefined && found === this.#watched)) return
    this.#dropWatcher()
    if (found === undefined) return
    const names = await namesOf(this.#options.path)
    if (this.#isClosed) return
    try {
      this.#watcher = watch(directory, { persistent: false }, (event, name) => {
        // A log in the same directory may be written thousands of times a second.
        if (event === 'rename' || name === null || names.has(name)) this.#settle()
      })
    } catch {
      return // ENOSPC: the machine has no watches left
    }
    this.#watched = found
    this.#watcher.on('error', () => this.#dropWatcher())
  }

  #dropWatcher(): void {
    this.#watcher?.close()
    this.#watcher = undefined
    this.#watched = undefined
  }

  /** A rename counts for any name: a swap renames a symlink that the file is reached through, not the file. */
  #settle(): void {
    if (this.#isClosed || this.#postponements === MAX_POSTPONEMENTS) return
    this.#postponements += 1
    clearTimeout(this.#settling)
    this.#settling = setTimeout(() => {
      this.#postponements = 0
      this.#attempt(false)
    }, this.#options.settleMs ?? SETTLE_MS).unref()
  }
}

/** Runs `run` on demand, one run at a time. A run in progress may have read the old content, so a new one follows it. */
export class Reruns {
  readonly #run: (isAskedFor: boolean) => Promise<void>
  #running: Promise<void> | undefined
  /** Starts when the running one has ended. All requests in the meantime share it. */
  #next: Promise<void> | undefined
  #isNextAskedFor = false

  /** `run` must not reject. `isAskedFor` is false if only a watch or a poll is the reason. */
  constructor(run: (isAskedFor: boolean) => Promise<void>) {
    this.#run = run
  }

  /** Resolves when the next run has ended. */
  next(isAskedFor: boolean): Promise<void> {
    this.#isNextAskedFor ||= isAskedFor
    this.#next ??= (this.#running ?? Promise.resolve()).then(() => {
      const wasAskedFor = this.#isNextAskedFor
      this.#isNextAskedFor = false
      this.#running = this.#next
      this.#next = undefined
      return this.#run(wasAskedFor)
    })
    return this.#next
  }
}

const STALLED = 'cannot be read: the file system does not answer'
const NOT_REGULAR = 'is not a regular file: name a file, not a pipe, a socket or a device'

/**
 * Reads a regular file of at most `maxBytes`, 64 KiB by default, in at most two seconds. Refuses anything else before it
 * opens it: opening a FIFO waits for a writer, and opening a device may have effects.
 * @throws {FileUnreadable}
 */
export async function readRegularFile(path: string, maxBytes?: number): Promise<FileContent> {
  try {
    return await inTime(readUntimed(path, maxBytes))
  } catch (error) {
    if (!(error instanceof FileUnreadable)) throw error
    const named = isAbsolute(path) ? path : `${path} (${resolve(path)})`
    throw new FileUnreadable(`${named} ${error.message}`, { cause: error.cause })
  }
}

async function readUntimed(path: string, maxBytes = MAX_FILE_BYTES): Promise<FileContent> {
  try {
    refuseUnlessRegular(await stat(path))
    // O_NONBLOCK: if the file has become a FIFO since the stat, the open must not wait for a writer.
    await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
    const found = await file.stat()
    refuseUnlessRegular(found)
    const chunks: Buffer[] = []
    let length = 0
    for (;;) {
      const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(CHUNK_BYTES), 0, CHUNK_BYTES, null)
      if (bytesRead === 0) return { bytes: Buffer.concat(chunks, length), mode: found.mode }
      chunks.push(buffer.subarray(0, bytesRead))
      length += bytesRead
      if (length > maxBytes) throw new FileUnreadable(`is larger than ${maxBytes / 1024} KiB`)
    }
  } catch (error) {
    if (error instanceof FileUnreadable) throw error
    throw new FileUnreadable(explainUnreadable(error), { cause: error })
  }
}

/**
 * Rejects at the time limit. The read itself cannot be stopped; `onStall` is called if it goes on.
 *
 * Counts ticks instead of setting one timer. A process that got no CPU for two seconds runs its timers before it looks at
 * the reads that have ended meanwhile: one timer would blame the file system, and the program would not start.
 */
async function inTime<T>(reading: Promise<T>, timeoutMs = TIMEOUT_MS, onStall?: () => void): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const limit = new Promise<undefined>((resolve) => {
    let ticks = 0
    timer = setInterval(() => {
      ticks += 1
      if (ticks === TICKS) resolve(undefined)
    }, timeoutMs / TICKS).unref()
  })
  const content = await Promise.race([reading, limit]).finally(() => clearInterval(timer))
  if (content !== undefined) return content
  onStall?.()
  reading.catch(() => undefined)
  throw new FileUnreadable(STALLED)
}

function refuseUnlessRegular(found: { isFile(): boolean; isDirectory(): boolean }): void {
  if (found.isFile()) return
  throw new FileUnreadable(found.isDirectory() ? IS_FOLDER : NOT_REGULAR)
}

const IS_FOLDER = 'is a folder, not a file (EISDIR)'

/** Explains to an operator why a file could not be read. */
export function explainUnreadable(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown error'
  switch (code) {
    case 'ENOENT':
    case 'ENOTDIR':
      return `does not exist (${code})`
    case 'EISDIR':
      return IS_FOLDER
    case 'EACCES':
    case 'EPERM':
      return (
        `cannot be read by uid ${process.getuid?.() ?? '?'} (${code}): let that user read it; ` +
        'a file-backed compose secret keeps the owner and mode of the file on the host, whatever uid and mode say'
      )
    default:
      return `cannot be read (${code})`
  }
}

/** The file's own name, and that of the file that it is a link to. */
async function namesOf(path: string): Promise<ReadonlySet<string>> {
  const target = await realpath(path).catch(() => path)
  return new Set([basename(path), basename(target)])
}

/** Inode numbers are soon used again, so the time of birth is part of the identity. */
async function identityOf(directory: string): Promise<string | undefined> {
  try {
    const { dev, ino, birthtimeMs } = await stat(directory)
    return `${dev}:${ino}:${birthtimeMs}`
  } catch {
    return undefined
  }
}
