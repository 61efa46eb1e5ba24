/**
 * The secret file after the start: re-read when it may have changed. It is watched through its directory, because
 * Kubernetes swaps a symlink there and a watch of the file itself goes silent after the first swap. Here it is only read;
 * whether a candidate is right is for others to prove.
 */

import { type FSWatcher, watch } from 'node:fs'
import { stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { Secret } from '../secret.ts'
import { readSecret } from './secret-text.ts'

/** `changed` and `polled` come from here, the others from whoever calls `reload`. */
export type ReloadReason = 'changed' | 'polled' | 'signalled' | 'rejected'

export interface SecretFileOptions {
  readonly path: string
  /** True for the secret that the program works with: it is no candidate. */
  readonly isInUse: (secret: Secret) => boolean
  /** Gets each well-formed content once; after `reload` again, because what failed its proof then may be right by now. */
  readonly onCandidate: (candidate: Secret, reason: ReloadReason) => void
  /** Gets each problem once for as long as it stays the same. */
  readonly onProblem: (message: string) => void
  readonly pollMs?: number
  /** How long the directory must be quiet before the file is read: a write in several steps is one change. */
  readonly settleMs?: number
}

const POLL_MS = 60_000
const SETTLE_MS = 100
/** In a directory that is never quiet the file is read after this many times `settleMs` all the same. */
const MAX_POSTPONEMENTS = 10

export class SecretFile {
  readonly #options: SecretFileOptions
  readonly #poll: NodeJS.Timeout
  #watcher: FSWatcher | undefined
  /** Which directory the watcher stands in: one that was replaced has another identity under the same name. */
  #watched: string | undefined
  #settling: NodeJS.Timeout | undefined
  #postponements = 0
  #lastCandidate: Secret | undefined
  #lastProblem: string | undefined
  /** Reads come one after the other, so that an older content never arrives behind a newer one. */
  #reading: Promise<void> = Promise.resolve()
  #isClosed = false

  constructor(options: SecretFileOptions) {
    this.#options = options
    this.#poll = setInterval(() => this.#enqueue('polled'), options.pollMs ?? POLL_MS).unref()
    this.#enqueue('polled')
  }

  /** Reads the file now. Resolves when what stands in it has been handed over, whatever it was. */
  reload(reason: 'signalled' | 'rejected'): Promise<void> {
    return this.#enqueue(reason)
  }

  close(): void {
    this.#isClosed = true
    clearInterval(this.#poll)
    clearTimeout(this.#settling)
    this.#dropWatcher()
  }

  #enqueue(reason: ReloadReason): Promise<void> {
    this.#reading = this.#reading
      // Watched first, read then: what changes in between is read or seen.
      .then(() => this.#watchDirectory())
      .then(() => this.#read(reason))
      .catch((error: unknown) => this.#report(error))
    return this.#reading
  }

  async #read(reason: ReloadReason): Promise<void> {
    if (this.#isClosed) return
    const { secret } = await readSecret(this.#options.path)
    this.#lastProblem = undefined
    if (this.#isClosed) return
    if (this.#options.isInUse(secret)) {
      this.#lastCandidate = undefined
      return
    }
    const isAskedFor = reason === 'signalled' || reason === 'rejected'
    if (!isAskedFor && this.#lastCandidate?.equals(secret)) return
    this.#lastCandidate = secret
    this.#options.onCandidate(secret, reason)
  }

  #report(error: unknown): void {
    const problem = error instanceof Error ? error.message : 'cannot be read'
    if (this.#isClosed || problem === this.#lastProblem) return
    this.#lastProblem = problem
    this.#options.onProblem(problem)
  }

  /** Watches, or watches anew where the directory is not the one it was. Where that fails, the poll remains. */
  async #watchDirectory(): Promise<void> {
    if (this.#isClosed) return
    const directory = dirname(this.#options.path)
    const found = await identityOf(directory)
    if (this.#isClosed || (found !== undefined && found === this.#watched)) return
    this.#dropWatcher()
    if (found === undefined) return
    try {
      this.#watcher = watch(directory, { persistent: false }, () => this.#settle())
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

  /** Any name counts: what changes in a swap is the name of a symlink that the file is reached through. */
  #settle(): void {
    if (this.#isClosed || this.#postponements === MAX_POSTPONEMENTS) return
    this.#postponements += 1
    clearTimeout(this.#settling)
    this.#settling = setTimeout(() => {
      this.#postponements = 0
      this.#enqueue('changed')
    }, this.#options.settleMs ?? SETTLE_MS).unref()
  }
}

/** Inode numbers are used again, and soon: the time of birth tells a new directory from the old one. */
async function identityOf(directory: string): Promise<string | undefined> {
  try {
    const { dev, ino, birthtimeMs } = await stat(directory)
    return `${dev}:${ino}:${birthtimeMs}`
  } catch {
    return undefined
  }
}
