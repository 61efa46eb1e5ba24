import { writeFileSync } from 'node:fs'
import { mkdir, rename, rm, symlink, unlink, writeFile } from 'node:fs/promises'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { SecretFile, type SecretFileOptions } from '../../src/config/secret-file.ts'
import { type Folder, makeFolder } from './folder.ts'

/** So long that what is seen was not seen by the poll. */
const NEVER_MS = 1_000_000
const WAIT = { timeout: 10_000, interval: 5 }

let folder: Folder
let opened: SecretFile[]
let inUse: string
let candidates: [secret: string, reason: string][]
let problems: string[]

beforeEach(async () => {
  folder = await makeFolder()
  opened = []
  inUse = 'old'
  candidates = []
  problems = []
})

afterEach(async () => {
  for (const file of opened) file.close()
  await folder[Symbol.asyncDispose]()
})

/** Returns once the folder is watched. */
async function open(path: string, options: Partial<SecretFileOptions> = {}): Promise<SecretFile> {
  const file = new SecretFile({
    path,
    isInUse: (secret) => secret.reveal() === inUse,
    onCandidate: (secret, reason) => candidates.push([secret.reveal(), reason]),
    onProblem: (message) => problems.push(message),
    pollMs: NEVER_MS,
    settleMs: 20,
    ...options,
  })
  opened.push(file)
  await file.reload('signalled')
  return file
}

/** In one step, so that no read sees less than the whole. */
async function replace(path: string, content: string | Uint8Array): Promise<void> {
  await rename(await folder.write('next', content), path)
}

const candidatesBecome = (...expected: [string, string][]) =>
  vi.waitFor(() => expect(candidates).toEqual(expected), WAIT)
const problemsBecome = (...expected: string[]) => vi.waitFor(() => expect(problems).toEqual(expected), WAIT)

describe('a change is seen', () => {
  test('where the file is written anew, its trailing newline dropped', async () => {
    const path = await folder.write('secret', 'old\n')
    await open(path)
    await writeFile(path, 'new\n')
    await candidatesBecome(['new', 'changed'])
  })

  test('where another file is renamed to its name, again and again', async () => {
    const path = await folder.write('secret', 'old')
    await open(path)
    await replace(path, 'second')
    await candidatesBecome(['second', 'changed'])
    await replace(path, 'third')
    await candidatesBecome(['second', 'changed'], ['third', 'changed'])
  })

  test('where Kubernetes swaps the folder that the file is linked through', async () => {
    // secret -> ..data/secret, ..data -> ..generation; only the name ..data is changed, in one rename.
    const swapTo = async (generation: string, content: string) => {
      await mkdir(folder.at(`..${generation}`))
      await folder.write(`..${generation}/secret`, content)
      await symlink(`..${generation}`, folder.at('..data_tmp'))
      await rename(folder.at('..data_tmp'), folder.at('..data'))
    }
    await swapTo('first', 'old')
    await symlink('..data/secret', folder.at('secret'))
    await open(folder.at('secret'))
    await swapTo('second', 'new')
    await rm(folder.at('..first'), { recursive: true })
    await candidatesBecome(['new', 'changed'])
    await swapTo('third', 'newer')
    await candidatesBecome(['new', 'changed'], ['newer', 'changed'])
    expect(problems).toEqual([])
  })

  test('once, where it comes in several steps', async () => {
    const path = await folder.write('secret', 'old')
    await open(path, { settleMs: 300 })
    for (const step of ['', 'ne', 'new', 'newer']) writeFileSync(path, step)
    await candidatesBecome(['newer', 'changed'])
    expect(problems).toEqual([])
  })

  test('by the poll, where it is made out of sight of the watch', async () => {
    await mkdir(folder.at('elsewhere'))
    const target = await folder.write('elsewhere/secret', 'old')
    await symlink(target, folder.at('secret'))
    await open(folder.at('secret'), { pollMs: 10 })
    await replace(target, 'new')
    await candidatesBecome(['new', 'polled'])
  })

  test('where the whole folder is removed and made again', async () => {
    await mkdir(folder.at('secrets'))
    const path = await folder.write('secrets/secret', 'old')
    const file = await open(path)
    await rm(folder.at('secrets'), { recursive: true })
    await problemsBecome('does not exist (ENOENT): check the path')
    await mkdir(folder.at('secrets'))
    await writeFile(path, 'old')
    // What the next poll would do: see the folder, and watch it.
    await file.reload('signalled')
    await writeFile(path, 'new')
    await candidatesBecome(['new', 'changed'])
  })

  test('where the folder was not even there at first', async () => {
    const path = folder.at('secrets/secret')
    await open(path, { pollMs: 10 })
    expect(problems).toEqual(['does not exist (ENOENT): check the path'])
    await mkdir(folder.at('secrets'))
    await writeFile(path, 'new')
    await vi.waitFor(() => expect(candidates.map(([secret]) => secret)).toEqual(['new']), WAIT)
  })
})

describe('what is no change is not handed over', () => {
  test('the secret in use, however often it is written or asked for', async () => {
    const path = await folder.write('secret', 'old')
    const file = await open(path)
    await replace(path, 'old\n')
    await file.reload('signalled')
    await file.reload('rejected')
    expect(candidates).toEqual([])
  })

  test('a candidate that was handed over before, unless somebody asks', async () => {
    let reads = 0
    const path = await folder.write('secret', 'wrong')
    const file = await open(path, { pollMs: 5, isInUse: () => ++reads < 0 })
    const first: [string, string][] = [
      ['wrong', 'polled'],
      ['wrong', 'signalled'],
    ]
    await vi.waitFor(() => expect(reads).toBeGreaterThan(10), WAIT)
    expect(candidates).toEqual(first)
    await file.reload('rejected')
    expect(candidates).toEqual([...first, ['wrong', 'rejected']])
  })

  test('but one that comes back after the right one stood there again is', async () => {
    const path = await folder.write('secret', 'old')
    const file = await open(path)
    await replace(path, 'wrong')
    await candidatesBecome(['wrong', 'changed'])
    await replace(path, 'old')
    await file.reload('signalled')
    await replace(path, 'wrong')
    await candidatesBecome(['wrong', 'changed'], ['wrong', 'changed'])
  })
})

describe('what is no secret is told once', () => {
  test.each([
    ['', 'is empty: put the secret into it'],
    ['\n', 'is empty: put the secret into it'],
    ['a\nb\n', 'has more than one line: put the secret and nothing else into it'],
    ['ha\0\0\0', 'has control characters in it: it is not text, or only half written'],
    [new Uint8Array([0xc3]), 'is not UTF-8 text: it may be only half written'],
  ])('%j', async (content, problem) => {
    const path = await folder.write('secret', 'old')
    await open(path)
    await replace(path, content)
    await problemsBecome(problem)
    await replace(path, 'new')
    await candidatesBecome(['new', 'changed'])
    expect(problems).toEqual([problem])
  })

  test('however often it is polled, and anew when it comes back', async () => {
    const path = await folder.write('secret', 'old')
    const file = await open(path, { pollMs: 5 })
    await unlink(path)
    await problemsBecome('does not exist (ENOENT): check the path')
    for (let reads = 0; reads < 5; reads++) await file.reload('rejected')
    await replace(path, '')
    await problemsBecome('does not exist (ENOENT): check the path', 'is empty: put the secret into it')
    await replace(path, 'old')
    await file.reload('signalled')
    await replace(path, '')
    await problemsBecome(
      'does not exist (ENOENT): check the path',
      'is empty: put the secret into it',
      'is empty: put the secret into it',
    )
    expect(candidates).toEqual([])
  })

  test('a callback that fails is told too, and the next change is seen', async () => {
    const path = await folder.write('secret', 'old')
    let failures = 1
    await open(path, {
      onCandidate: (secret) => {
        if (failures-- > 0) throw new Error('out of order')
        candidates.push([secret.reveal(), ''])
      },
    })
    await replace(path, 'new')
    await problemsBecome('out of order')
    await replace(path, 'newer')
    await candidatesBecome(['newer', ''])
  })
})

test('after close nothing is read, and nothing keeps the process alive', async () => {
  const path = await folder.write('secret', 'old')
  const watchesBefore = process.getActiveResourcesInfo().filter((name) => name === 'FSEventWrap').length
  const file = await open(path, { pollMs: 5 })
  file.close()
  await replace(path, 'new')
  await file.reload('signalled')
  expect(candidates).toEqual([])
  await vi.waitFor(() => {
    const left = process.getActiveResourcesInfo().filter((name) => name === 'FSEventWrap').length
    expect(left).toBe(watchesBefore)
  }, WAIT)
})
