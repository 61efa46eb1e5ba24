/** Unix sockets: their mode, what lies in their place, and two instances that want the same one. */

import { readdirSync, symlinkSync, unlinkSync } from 'node:fs'
import { link, lstat, mkdir, mkdtemp, rename, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { connect, createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { beforeEach, expect, onTestFinished, test } from 'vitest'
import { parseAddress } from '../../../src/config/address.ts'
import { type Bound, bind } from '../../../src/listener/bind.ts'

let folder = ''
let path = ''
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'oap-'))
  path = join(folder, 'proxy.sock')
  return () => rm(folder, { recursive: true })
})

async function bindHere(newServer: () => Server = createServer, mode = 0o660): Promise<Bound> {
  const bound = await bind({ kind: 'unix', path }, newServer, mode)
  onTestFinished(() => bound.close())
  return bound
}

/** What an instance that was killed leaves behind. */
async function leaveStale(): Promise<void> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(`${path}.bound`, resolve))
  await link(`${path}.bound`, path)
  await new Promise((resolve) => server.close(resolve))
}

// The longest that the configuration accepts: the socket is first bound under another name in the same folder.
test.each(['p', 'proxy.sock', 'a-long-name-of-a-socket'])('the longest path that ends in %s', async (name) => {
  const longest = (room: number) => join(folder, 'x'.repeat(room), name)
  let room = 1
  while (isAccepted(longest(room + 1))) room++
  path = longest(room)
  await mkdir(join(path, '..'))
  await bindHere()
  expect((await stat(path)).isSocket()).toBe(true)
  expect(Buffer.byteLength(path)).toBeGreaterThan(90)
})

function isAccepted(socket: string): boolean {
  try {
    return parseAddress(`unix:${socket}`).kind === 'unix'
  } catch {
    return false
  }
}

test.each([0o600, 0o660, 0o666, 0o777])('the mode is exact, whatever the umask: %o', async (mode) => {
  const before = process.umask(0o077)
  onTestFinished(() => void process.umask(before))
  await bindHere(createServer, mode)
  expect((await lstat(path)).mode & 0o777).toBe(mode)
  expect(process.umask()).toBe(0o077)
})

/**
 * The attack: who can write to the directory puts a symlink to the secret in place of the new socket. A `chmod` of the socket
 * follows it, and then others can read the secret.
 */
test('a symlink in place of the new socket changes the mode of no other file, and is not listened on', async () => {
  const secret = join(folder, 'secret')
  await writeFile(secret, 'secret', { mode: 0o600 })
  const attacked = createServer()
  attacked.once('listening', () => {
    for (const name of readdirSync(folder).filter((each) => each.startsWith('.'))) {
      unlinkSync(join(folder, name))
      symlinkSync(secret, join(folder, name))
    }
  })
  await expect(bindHere(() => attacked, 0o666)).rejects.toThrow('replaced')
  expect((await stat(secret)).mode & 0o777).toBe(0o600)
  expect(readdirSync(folder)).not.toContain('proxy.sock')
})

test('a file, or a symlink to a stale socket, is refused and stays', async () => {
  await leaveStale()
  await symlink(path, `${path}.link`)
  await writeFile(`${path}.file`, 'precious')
  for (path of [`${path}.link`, `${path}.file`]) {
    const before = await lstat(path)
    await expect(bindHere()).rejects.toThrow('is not a socket')
    expect(await lstat(path)).toMatchObject({ ino: before.ino, size: before.size })
  }
})

test('a socket that cannot be removed does not disturb the stop', async () => {
  const bound = await bindHere()
  await rename(folder, `${folder}.moved`)
  await writeFile(folder, 'a file where the folder was')
  await bound.close()
  await rm(folder)
  await rename(`${folder}.moved`, folder)
})

test('of two instances that start on one stale socket, exactly one listens, and it can be reached', async () => {
  for (let round = 0; round < 30; round++) {
    await leaveStale()
    const started = await Promise.allSettled(
      ['first', 'second'].map((name) =>
        bind({ kind: 'unix', path }, () => createServer((socket) => socket.end(name)), 0o660),
      ),
    )
    const ready = started.flatMap((each, i) => (each.status === 'fulfilled' ? [['first', 'second'][i]] : []))
    const problems = started.flatMap((each) => (each.status === 'rejected' ? [each.reason.code] : []))
    expect([ready.length, problems]).toEqual([1, ['EADDRINUSE']])
    const greeting = await new Promise((resolve, reject) =>
      connect(path)
        .once('data', (bytes) => resolve(String(bytes)))
        .once('error', reject),
    )
    expect(greeting).toBe(ready[0])
    for (const each of started) if (each.status === 'fulfilled') await each.value.close()
    expect(readdirSync(folder)).toEqual([])
  }
})
