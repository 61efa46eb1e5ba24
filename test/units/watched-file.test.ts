import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { mkdir, rename, rm, symlink, unlink } from 'node:fs/promises'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { digestOf, readRegularFile, WatchedFile, type WatchedFileOptions } from '../../src/watched-file.ts'
import { type Folder, makeFolder } from '../support/folder.ts'
import { looksOnDemand } from '../support/looks.ts'

/** So long that no look happens in a test. */
const NEVER_MS = 1_000_000
const WAIT = { timeout: 10_000, interval: 5 }
const MISSING = expect.stringContaining('does not exist (ENOENT)')

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
  for (const file of opened) file.close()
  await folder[Symbol.asyncDispose]()
})

/** Resolves after the first read. */
async function open(path: string, options: Partial<WatchedFileOptions> = { intervalMs: 10 }): Promise<WatchedFile> {
  const file = new WatchedFile({
    path,
    onContent: (bytes) => contents.push(String(bytes)),
    onProblem: (text) => problems.push(text),
    known: digestOf(Buffer.from('old')),
    ...options,
  })
  opened.push(file)
  await file.reload()
  contents = []
  return file
}

/** In one step, so that no read gets half of the content. */
async function replace(path: string, content: string): Promise<void> {
  await rename(await folder.write('next', content), path)
}

const contentsBecome = (...expected: string[]) => vi.waitFor(() => expect(contents).toEqual(expected), WAIT)
const problemsBecome = (...expected: string[]) => vi.waitFor(() => expect(problems).toEqual(expected), WAIT)

describe('a change is seen', () => {
  test('when another file is renamed to its name, again and again', async () => {
    const path = await folder.write('file', 'old')
    await open(path)
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
    await open(folder.at('file'))
    await swapTo('second', 'new')
    await rm(folder.at('..first'), { recursive: true })
    await contentsBecome('new')
    await swapTo('third', 'newer')
    await contentsBecome('new', 'newer')
    expect(problems).toEqual([])
  })
})

describe('content is passed to the owner', () => {
  test('on the first read, unless it is known', async () => {
    const path = await folder.write('file', 'content')
    const read = (known?: string) =>
      new Promise<string>((resolve, reject) => {
        const onContent = () => resolve('passed')
        const file = new WatchedFile({ path, known, onContent, onProblem: reject, intervalMs: 5 })
        opened.push(file)
        setTimeout(resolve, 100, 'nothing')
      })
    expect(await read()).toBe('passed')
    expect(await read(digestOf(Buffer.from('content')))).toBe('nothing')
  })

  test('after every reload, as it is after the call, even during a read', async () => {
    const path = await folder.write('file', 'old')
    const file = await open(path, { intervalMs: NEVER_MS })
    await file.reload()
    expect(contents).toEqual(['old'])
    const first = file.reload()
    writeFileSync(path, 'new')
    await Promise.all([first, file.reload()])
    expect(contents.at(-1)).toBe('new')
  })
})

// An editor and `cp` write in place: for a moment, the file is cut short.
describe('content that is still being written is not passed', () => {
  test('until two looks in a row have found it', async () => {
    const look = looksOnDemand(10)
    const path = await folder.write('file', 'old')
    await open(path)
    for (const part of ['h', 'ha', 'hal', 'half']) {
      writeFileSync(path, part)
      await look()
    }
    expect(contents).toEqual([])
    await look()
    expect(contents).toEqual(['half'])
  })

  test('nor reported as a problem while it is missing', async () => {
    const look = looksOnDemand(10)
    const path = await folder.write('file', 'old')
    await open(path)
    await unlink(path)
    await look()
    writeFileSync(path, 'new')
    await look()
    await look()
    expect([contents, problems]).toEqual([['new'], []])
  })

  test('unless the owner asks', async () => {
    const path = await folder.write('file', 'old')
    const file = await open(path)
    writeFileSync(path, 'ha')
    await file.reload()
    expect(contents).toEqual(['ha'])
  })
})

describe('a problem is reported', () => {
  test('once, and again when it comes back; its end with the former content', async () => {
    const path = await folder.write('file', 'old')
    const file = await open(path)
    await unlink(path)
    await problemsBecome(MISSING)
    for (let reads = 0; reads < 5; reads++) await file.reload()
    expect(problems).toEqual([MISSING])
    await replace(path, 'old')
    await contentsBecome('old')
    await unlink(path)
    await problemsBecome(MISSING, MISSING)
  })

  test('when the owner refuses the content', async () => {
    const path = await folder.write('file', 'old')
    const onContent = (bytes: Buffer) => {
      if (bytes.length === 0) throw new Error('is empty')
      contents.push(String(bytes))
    }
    const file = await open(path, { onContent, intervalMs: 10 })
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
  const NOT_REGULAR = 'is a folder, a pipe, a socket or a device: name a regular file'

  // An operator, or another writer of the folder, replaces the secret by a FIFO. Opening it would wait for ever.
  test('a FIFO that nobody writes to is refused at once, and the next content is read', async () => {
    const path = folder.at('file')
    execFileSync('mkfifo', [path])
    await open(path)
    expect(problems).toEqual([expect.stringContaining(NOT_REGULAR)])
    await replace(path, 'new')
    await contentsBecome('new')
  })

  // /dev/zero never ends: reading it whole would fill the memory.
  test.each(['/dev/zero', '/dev/null'])('%s is refused', async (device) => {
    await symlink(device, folder.at('file'))
    await expect(readRegularFile(folder.at('file'))).rejects.toThrow(NOT_REGULAR)
  })

  test('a file with the size 0 but with content, as in /proc, is read completely', async () => {
    expect(String((await readRegularFile('/proc/self/status')).bytes)).toMatch(/^Name:/)
  })
})

test('after close nothing is passed on', async () => {
  const path = await folder.write('file', 'old')
  const file = await open(path)
  file.close()
  await replace(path, 'new')
  await file.reload()
  expect(contents).toEqual([])
})
