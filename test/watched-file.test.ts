import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { watch, writeFileSync } from 'node:fs'
import { appendFile, mkdir, rename, rm, symlink, unlink, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { type FileContent, readRegularFile, WatchedFile, type WatchedFileOptions } from '../src/watched-file.ts'
import { type Folder, makeFolder } from './config/folder.ts'

/** So long that no poll happens in a test. */
const NEVER_MS = 1_000_000
const WAIT = { timeout: 10_000, interval: 5 }
const MISSING = 'does not exist (ENOENT)'
const STALLED = 'cannot be read: the file system does not answer'

let folder: Folder
let opened: WatchedFile[]
let contents: string[]
let problems: string[]

beforeEach(async () => {
  folder = await makeFolder()
  opened = []
  contents = []
  problems = []
})

afterEach(async () => {
  vi.useRealTimers()
  for (const file of opened) file.close()
  await folder[Symbol.asyncDispose]()
})

function open(path: string, options: Partial<WatchedFileOptions> = {}): WatchedFile {
  const file = new WatchedFile({
    path,
    onContent: (bytes, isAskedFor) => contents.push(`${bytes}${isAskedFor ? ' (asked for)' : ''}`),
    onProblem: (text) => problems.push(text),
    known: Buffer.from('old'),
    pollMs: NEVER_MS,
    settleMs: 20,
    ...options,
  })
  opened.push(file)
  return file
}

/** Resolves when the folder is watched. */
async function openWatched(path: string, options: Partial<WatchedFileOptions> = {}): Promise<WatchedFile> {
  const file = open(path, options)
  await file.reload()
  contents = []
  return file
}

/** In one step, so that no read gets half of the content. */
async function replace(path: string, content: string | Uint8Array): Promise<void> {
  await rename(await folder.write('next', content), path)
}

const contentsBecome = (...expected: string[]) => vi.waitFor(() => expect(contents).toEqual(expected), WAIT)
const problemsBecome = (...expected: string[]) => vi.waitFor(() => expect(problems).toEqual(expected), WAIT)

describe('a change is seen', () => {
  test('when the file is overwritten', async () => {
    const path = await folder.write('file', 'old')
    await openWatched(path)
    await writeFile(path, 'new\n')
    await contentsBecome('new\n')
  })

  test('when another file is renamed to its name, again and again', async () => {
    const path = await folder.write('file', 'old')
    await openWatched(path)
    await replace(path, 'second')
    await contentsBecome('second')
    await replace(path, 'third')
    await contentsBecome('second', 'third')
    await replace(path, 'second')
    await contentsBecome('second', 'third', 'second')
  })

  test('when Kubernetes replaces the folder behind the symlink', async () => {
    // file -> ..data/file, ..data -> ..generation; only the name ..data changes, in one rename.
    const swapTo = async (generation: string, content: string) => {
      await mkdir(folder.at(`..${generation}`))
      await folder.write(`..${generation}/file`, content)
      await symlink(`..${generation}`, folder.at('..data_tmp'))
      await rename(folder.at('..data_tmp'), folder.at('..data'))
    }
    await swapTo('first', 'old')
    await symlink('..data/file', folder.at('file'))
    await openWatched(folder.at('file'))
    await swapTo('second', 'new')
    await rm(folder.at('..first'), { recursive: true })
    await contentsBecome('new')
    await swapTo('third', 'newer')
    await contentsBecome('new', 'newer')
    expect(problems).toEqual([])
  })

  test('once, when it comes in several steps', async () => {
    const path = await folder.write('file', 'old')
    await openWatched(path, { settleMs: 300 })
    for (const step of ['', 'ne', 'new', 'newer']) writeFileSync(path, step)
    await contentsBecome('newer')
    expect(problems).toEqual([])
  })

  test('by the poll, if the watch cannot see it', async () => {
    await mkdir(folder.at('elsewhere'))
    const target = await folder.write('elsewhere/file', 'old')
    await symlink(target, folder.at('file'))
    await openWatched(folder.at('file'), { pollMs: 10 })
    await replace(target, 'new')
    await contentsBecome('new')
  })

  test('by the poll once a minute, and not earlier', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    let reads = 0
    const read = () => {
      reads += 1
      return Promise.resolve({ bytes: Buffer.from('old'), mode: 0o600 })
    }
    const file = new WatchedFile({ path: folder.at('file'), read, onContent: () => {}, onProblem: () => {} })
    opened.push(file)
    await file.reload()
    reads = 0
    vi.advanceTimersByTime(59_999)
    await file.reload()
    expect(reads).toBe(1)
    vi.advanceTimersByTime(1)
    await vi.waitFor(() => expect(reads).toBe(2), WAIT)
  })

  test('when the whole folder is removed and made again', async () => {
    await mkdir(folder.at('folder'))
    const path = await folder.write('folder/file', 'old')
    const file = await openWatched(path)
    await rm(folder.at('folder'), { recursive: true })
    await problemsBecome(MISSING)
    await mkdir(folder.at('folder'))
    await writeFile(path, 'old')
    // Like the next poll: finds the folder, and watches it.
    await file.reload()
    contents = []
    await writeFile(path, 'new')
    await contentsBecome('new')
  })

  test('when the folder did not exist at first', async () => {
    const path = folder.at('folder/file')
    await openWatched(path, { pollMs: 10 })
    expect(problems).toEqual([MISSING])
    await mkdir(folder.at('folder'))
    await writeFile(path, 'new')
    await contentsBecome('new')
  })
})

describe('content is passed to the owner', () => {
  test('on the first read, unless it is known', async () => {
    const path = await folder.write('file', 'content')
    open(path, { known: undefined })
    await contentsBecome('content')
    let reads = 0
    const read = async (): Promise<FileContent> => {
      reads += 1
      return readRegularFile(path)
    }
    open(path, { known: Buffer.from('content'), pollMs: 5, read })
    await vi.waitFor(() => expect(reads).toBeGreaterThan(5), WAIT)
    expect(contents).toEqual(['content'])
  })

  test('after every reload, changed or not', async () => {
    const file = open(await folder.write('file', 'old'))
    await file.reload()
    await file.reload()
    expect(contents).toEqual(['old (asked for)', 'old (asked for)'])
  })

  test('as it is after the call of reload, even during a read', async () => {
    const path = await folder.write('file', 'old')
    const file = await openWatched(path)
    const first = file.reload()
    writeFileSync(path, 'new')
    await Promise.all([first, file.reload()])
    expect(contents.at(-1)).toBe('new (asked for)')
  })
})

describe('a problem is reported', () => {
  test('once, and again when it comes back', async () => {
    const path = await folder.write('file', 'old')
    const file = await openWatched(path, { pollMs: 5 })
    await unlink(path)
    await problemsBecome(MISSING)
    for (let reads = 0; reads < 5; reads++) await file.reload()
    expect(problems).toEqual([MISSING])
    await replace(path, 'old')
    await file.reload()
    await unlink(path)
    await problemsBecome(MISSING, MISSING)
  })

  test('and its end, with the former content', async () => {
    const path = await folder.write('file', 'old')
    await openWatched(path)
    await unlink(path)
    await problemsBecome(MISSING)
    await replace(path, 'old')
    await contentsBecome('old')
  })

  test('when the owner refuses the content, once for each content', async () => {
    const path = await folder.write('file', 'old')
    const onContent = (bytes: Buffer) => {
      if (bytes.length === 0) throw new Error('is empty')
      contents.push(String(bytes))
    }
    const file = await openWatched(path, { onContent })
    await replace(path, '')
    await problemsBecome('is empty')
    await file.reload()
    await replace(path, 'new')
    await contentsBecome('new')
    await replace(path, '')
    await problemsBecome('is empty', 'is empty')
  })
})

describe('only a regular file is read', () => {
  const NOT_REGULAR = 'is not a regular file: name a file, not a pipe, a socket or a device'

  // An operator, or another writer of the folder, replaces the secret by a FIFO. Opening it would wait for ever.
  test('a FIFO that nobody writes to is refused at once, and the next content is read', async () => {
    const path = folder.at('file')
    execFileSync('mkfifo', [path])
    const file = await openWatched(path)
    expect(problems).toEqual([NOT_REGULAR])
    await replace(path, 'new')
    await file.reload()
    expect(contents).toContain('new (asked for)')
  })

  // /dev/zero never ends: reading it whole would fill the memory.
  test.each(['/dev/zero', '/dev/stdin', '/dev/null'])('%s is refused', async (device) => {
    await symlink(device, folder.at('file'))
    await expect(readRegularFile(folder.at('file'))).rejects.toThrow(NOT_REGULAR)
  })

  test('a folder is refused', async () => {
    await expect(readRegularFile(folder.path)).rejects.toThrow('is a folder, not a file (EISDIR)')
  })

  test('at most 64 KiB, or the given limit', async () => {
    const path = await folder.write('file', 'x'.repeat(65_536))
    expect((await readRegularFile(path)).bytes.length).toBe(65_536)
    await writeFile(path, 'x'.repeat(65_537))
    await expect(readRegularFile(path)).rejects.toThrow('is larger than 64 KiB')
    expect((await readRegularFile(path, 1024 * 1024)).bytes.length).toBe(65_537)
  })

  test('a file with the size 0 but with content, as in /proc, is read completely', async () => {
    expect(String((await readRegularFile('/proc/self/status')).bytes)).toMatch(/^Name:/)
  })
})

describe('a file system that does not answer', () => {
  /** Answers each read when the test releases it. */
  function stalledReader() {
    const waiting: ((content: FileContent) => void)[] = []
    return {
      waiting,
      read: () => new Promise<FileContent>((resolve) => waiting.push(resolve)),
      answer: (text: string) => waiting.shift()?.({ bytes: Buffer.from(text), mode: 0o600 }),
    }
  }

  test('delays nobody longer than the time limit, and holds at most one thread', async () => {
    const mount = stalledReader()
    const file = open(folder.at('file'), { read: mount.read, timeoutMs: 20 })
    await file.reload()
    await file.reload()
    await file.reload()
    expect(problems).toEqual([STALLED])
    expect(mount.waiting).toHaveLength(1)
  })

  test('is not reported if only this process had no time to read the answer', async () => {
    const timeoutMs = 400
    const read = async (): Promise<FileContent> => {
      for (let turn = 0; turn < 2; turn++) {
        await new Promise(setImmediate)
        const startedAt = performance.now()
        while (performance.now() - startedAt < timeoutMs);
      }
      return { bytes: Buffer.from('new'), mode: 0o600 }
    }
    open(folder.at('file'), { read, timeoutMs })
    await contentsBecome('new')
    expect(problems).toEqual([])
  })

  test('is read anew as soon as it answers; a late answer is not used', async () => {
    const mount = stalledReader()
    const file = open(folder.at('file'), { read: mount.read, timeoutMs: 20 })
    await file.reload()
    mount.answer('late')
    await vi.waitFor(() => {
      mount.answer('new') // on a busy machine this may be late, too
      expect(contents).toEqual(['new'])
    }, WAIT)
  })
})

test('constant writes to another file in the folder cause no reads', async () => {
  const path = await folder.write('file', 'old')
  const log = await folder.write('log', '')
  let reads = 0
  const read: WatchedFileOptions['read'] = (name, maxBytes) => {
    reads++
    return readRegularFile(name, maxBytes)
  }
  await openWatched(path, { read, settleMs: 1 })
  const readsBefore = reads
  const watcher = watch(dirname(log))
  for (let line = 0; line < 30; line++) {
    const seen = once(watcher, 'change')
    await appendFile(log, 'a line\n')
    await seen
    await new Promise((resolve) => setTimeout(resolve, 2)) // longer than settleMs: a read that an event causes has begun
  }
  watcher.close()
  expect(reads).toBe(readsBefore)
})

test('after close nothing is read, and nothing keeps the process alive', async () => {
  const path = await folder.write('file', 'old')
  const watchesBefore = process.getActiveResourcesInfo().filter((name) => name === 'FSEventWrap').length
  const file = await openWatched(path, { pollMs: 5 })
  file.close()
  await replace(path, 'new')
  await file.reload()
  expect(contents).toEqual([])
  await vi.waitFor(() => {
    const left = process.getActiveResourcesInfo().filter((name) => name === 'FSEventWrap').length
    expect(left).toBe(watchesBefore)
  }, WAIT)
})
