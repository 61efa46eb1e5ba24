import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { mkdir, rename, rm, symlink, unlink } from 'node:fs/promises'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { FileWatch, LOOK_MS, MAX_FILE_BYTES, readRegularFile } from '../../src/watched-file.ts'
import { type Folder, makeFolder } from '../support/folder.ts'
import { looksOnDemand } from '../support/looks.ts'

let folder: Folder

beforeEach(async () => {
  folder = await makeFolder()
})

afterEach(() => folder[Symbol.asyncDispose]())

describe('a watch', () => {
  let watch: FileWatch
  let look: () => Promise<void>
  let changes: number

  /** Past the change that each watch tells after its start. */
  async function open(...names: string[]): Promise<void> {
    look = looksOnDemand(LOOK_MS)
    changes = 0
    watch = new FileWatch(
      () => names.map((name) => folder.at(name)),
      async () => {
        changes++
      },
    )
    await look()
    expect(changes, 'a file may have changed before the first look').toBe(1)
    changes = 0
  }

  afterEach(() => watch.close())

  /** In one step. */
  async function replace(name: string, content: string): Promise<void> {
    await rename(await folder.write('next', content), folder.at(name))
  }

  async function looks(count: number): Promise<number> {
    for (let i = 0; i < count; i++) await look()
    return changes
  }

  test('tells a change when another file is renamed to the name, again and again', async () => {
    await folder.write('file', 'old')
    await open('file')
    await replace('file', 'second')
    expect(await looks(2)).toBe(1)
    await replace('file', 'old')
    expect(await looks(2)).toBe(2)
    expect(await looks(5), 'nothing changes any more').toBe(2)
  })

  test('tells a change when Kubernetes replaces the folder behind the symlink', async () => {
    // file -> ..data/file, ..data -> ..generation; only the name ..data changes, in one rename.
    const swapTo = async (generation: string) => {
      await mkdir(folder.at(`..${generation}`))
      await folder.write(`..${generation}/file`, 'of one length')
      await symlink(`..${generation}`, folder.at('..data_tmp'))
      await rename(folder.at('..data_tmp'), folder.at('..data'))
    }
    await swapTo('first')
    await symlink('..data/file', folder.at('file'))
    await open('file')
    await swapTo('second')
    await rm(folder.at('..first'), { recursive: true })
    expect(await looks(2)).toBe(1)
  })

  // An editor and `cp` write in place: for a moment, the file is cut short.
  test('waits until the file has stood unchanged for one look', async () => {
    await folder.write('file', 'old')
    await open('file')
    for (const part of ['h', 'ha', 'hal', 'half']) {
      writeFileSync(folder.at('file'), part)
      expect(await looks(1)).toBe(0)
    }
    expect(await looks(1)).toBe(1)
  })

  test('does not tell of a file that is missing for a moment', async () => {
    await folder.write('file', 'old')
    await open('file')
    await unlink(folder.at('file'))
    await looks(1)
    await folder.write('file', 'new')
    expect(await looks(1)).toBe(0)
    expect(await looks(1)).toBe(1)
    await unlink(folder.at('file'))
    expect(await looks(2), 'a file that stays away').toBe(2)
  })

  test('tells once of three hundred files that are replaced, one after the other', async () => {
    const names = Array.from({ length: 300 }, (_, i) => `${i}.key`)
    for (const name of names) await folder.write(name, 'old')
    await open(...names)
    for (const part of [names.slice(0, 150), names.slice(150)]) {
      for (const name of part) await replace(name, 'new')
      expect(await looks(1)).toBe(0)
    }
    expect(await looks(3)).toBe(1)
  })

  test('tells nothing after its end', async () => {
    await folder.write('file', 'old')
    await open('file')
    await replace('file', 'new')
    await look()
    watch.close()
    expect(await looks(2)).toBe(0)
  })
})

describe('only a regular file is read', () => {
  const NOT_REGULAR = 'is a folder, a pipe, a socket or a device: name a regular file'

  // An operator, or another writer of the folder, replaces the secret by a FIFO. Opening it would wait for ever.
  test('a FIFO that nobody writes to is refused at once', async () => {
    execFileSync('mkfifo', [folder.at('file')])
    await expect(readRegularFile(folder.at('file'))).rejects.toThrow(NOT_REGULAR)
  })

  // /dev/zero never ends: reading it whole would fill the memory.
  test.each(['/dev/zero', '/dev/null'])('%s is refused', async (device) => {
    await symlink(device, folder.at('file'))
    await expect(readRegularFile(folder.at('file'))).rejects.toThrow(NOT_REGULAR)
  })

  test('a file with the size 0 but with content, as in /proc, is read completely', async () => {
    expect(String((await readRegularFile('/proc/self/status')).bytes)).toMatch(/^Name:[\s\S]*\n$/)
  })

  test('the memory is that of its size, and one byte more than allowed is refused', async () => {
    const { bytes } = await readRegularFile(await folder.write('file', 'content'), 4 * 1_048_576)
    expect([String(bytes), bytes.buffer.byteLength]).toEqual(['content', 8])
    const largest = await readRegularFile(await folder.write('file', Buffer.alloc(MAX_FILE_BYTES)))
    expect(largest.bytes).toHaveLength(MAX_FILE_BYTES)
    const tooLarge = await folder.write('file', Buffer.alloc(MAX_FILE_BYTES + 1))
    await expect(readRegularFile(tooLarge)).rejects.toThrow('is larger than 64 KiB')
  })
})
