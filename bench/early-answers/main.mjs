/**
 * Counts the early answers that each proxy loses. The origin answers an upload before it has read it, and closes the
 * connection. An answer is lost if the client, curl, does not get it.
 *
 * node bench/early-answers/main.mjs [UPLOADS]      after `npm run build`
 */

import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { startCandidate } from '../candidates/candidate.mjs'
import { direct } from '../candidates/direct.mjs'
import { goReverseProxy } from '../candidates/go.mjs'
import { nginx } from '../candidates/nginx.mjs'
import { orgAccessProxy } from '../candidates/org-access-proxy.mjs'
import { Child, LOAD_CORE } from '../harness/children.mjs'
import { freePort } from '../harness/ports.mjs'
import { untilAnswering } from '../harness/readiness.mjs'

const ENDINGS = ['close', 'after-some', 'fin-then-reset']
const SIZES = { '100 KB': 100_000, '2 MB': 2_000_000 }
const STATUS = '413'

const uploads = Number(process.argv[2] ?? 60)
const folder = mkdtempSync(join(tmpdir(), 'org-access-proxy-early-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
const originPort = await freePort()
const script = fileURLToPath(new URL('origin.mjs', import.meta.url))
const program = { command: process.execPath, args: [script, String(originPort)] }
const origin = new Child(program, { core: LOAD_CORE, folder, name: 'origin' })
await untilAnswering(originPort, '/v2/small', origin)

process.stdout.write(`lost of ${uploads} uploads\n`)
for (const candidate of [direct, orgAccessProxy, goReverseProxy, nginx]) {
  const reason = candidate.missing()
  if (reason !== undefined) {
    process.stdout.write(`${candidate.title}: left out, ${reason}\n`)
    continue
  }
  const options = { originUrl: `http://127.0.0.1:${originPort}`, caFile: '/dev/null', folder }
  const proxy = await startCandidate(candidate, options)
  for (const [size, bytes] of Object.entries(SIZES)) {
    const file = join(folder, 'content')
    writeFileSync(file, Buffer.alloc(bytes, 'x'))
    for (const ending of ENDINGS) {
      const statuses = await uploadAll(`${proxy.url}/v2/upload/${ending}`, file)
      const lost = statuses.filter((status) => status !== STATUS)
      const others = lost.length > 0 ? ` (${tally(lost)})` : ''
      process.stdout.write(`${candidate.title}, ${size}, ${ending}: ${lost.length}${others}\n`)
    }
  }
  await proxy.stop()
}
process.exit(0)

/**
 * @param {string} url
 * @param {string} file
 * @returns {Promise<string[]>} the status of each answer, 000 for none
 */
async function uploadAll(url, file) {
  const statuses = []
  for (let i = 0; i < uploads; i++) statuses.push(await upload(url, file))
  return statuses
}

/**
 * @param {string} url
 * @param {string} file
 * @returns {Promise<string>}
 */
function upload(url, file) {
  const args = ['-sS', '-m', '20', '-o', join(folder, 'answer'), '-w', '%{http_code}', '-H', 'X-Org-Id: acme']
  return new Promise((resolve) => {
    execFile('curl', [...args, '-H', 'Expect:', '--data-binary', `@${file}`, url], (_, status) => resolve(status))
  })
}

/** @param {readonly string[]} statuses */
function tally(statuses) {
  const counts = new Map()
  for (const status of statuses) counts.set(status, (counts.get(status) ?? 0) + 1)
  return [...counts].map(([status, count]) => `${count} × ${status}`).join(', ')
}
