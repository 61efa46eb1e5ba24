/**
 * `npm run simulate -- --faults`: puts each fault of this folder into the program, and plays seeds until one fails that passes without
 * it. README.md of the simulation has the options and the results.
 */

import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { MENDED } from './mended.mjs'
import { OF_ORACLES } from './of-oracles.mjs'
import { OWN } from './own.mjs'

/** The areas of these changes that the simulation reaches: one process, plain TCP, and well-formed messages. */
const SEEN = ['exchange', 'client', 'connections', 'token', 'tunnel']

/** Changes that a hostile reader would make (test/mutants/README.md). */
const chosen = (ofAllAreas) =>
  JSON.parse(readFileSync('test/mutants/chosen.json', 'utf8'))
    .filter(({ area }) => ofAllAreas || SEEN.includes(area))
    .map(({ area, file, find, replace, breaks }) => ({
      name: `${area}: ${breaks}`,
      edits: [[file.replace(/^src\//, ''), find, replace]],
    }))

const LISTS = { mended: () => MENDED, own: () => OWN, oracles: () => OF_ORACLES, mutants: chosen }

/** Whether the text of each edit is in its file, once. */
function applies({ edits }) {
  return edits.every(
    ([file, find]) => existsSync(`src/${file}`) && readFileSync(`src/${file}`, 'utf8').split(find).length === 2,
  )
}

/** A plugin of the bundler. */
const withFault = ({ edits }) => ({
  name: 'with-fault',
  transform(code, id) {
    const here = edits.filter(([file]) => id.endsWith(`/src/${file}`))
    return here.length === 0 ? undefined : here.reduce((text, [, find, put]) => text.split(find).join(put), code)
  },
})

/** `build` as in `../main.mjs`. Returns true if all faults apply and are found. */
export async function measureFaults(folder, build, args) {
  const { values } = parseArgs({
    args,
    options: {
      faults: { type: 'boolean' },
      /** One of the lists. */
      list: { type: 'string' },
      /** A part of the name. */
      only: { type: 'string', default: '' },
      /** Seeds for each: how many, or these, with a comma between two. */
      count: { type: 'string', default: '2000' },
      /** Looks whether they apply, and plays nothing. */
      check: { type: 'boolean', default: false },
    },
  })
  const lists = values.list === undefined ? Object.keys(LISTS) : values.list.split(',')
  const faults = lists.flatMap((list) => LISTS[list](values.check).map((fault) => ({ list, ...fault })))
  const asked = faults.filter(({ name }) => name.includes(values.only))
  const gone = asked.filter((fault) => !applies(fault))
  for (const { list, name } of gone) console.log(`${list}: no longer applies: ${name}`)
  if (values.check) return gone.length === 0
  await build('program-entry.ts', 'program.cjs', 'cjs')
  await build('faults/measure.ts', 'measure.mjs', 'esm')
  let isEachFound = gone.length === 0
  for (const fault of asked) {
    if (gone.includes(fault)) continue
    await build('program-entry.ts', 'faulty.cjs', 'cjs', [withFault(fault)])
    const files = ['measure.mjs', 'program.cjs', 'faulty.cjs'].map((file) => join(folder, file))
    const node = ['--no-warnings', '--expose-internals', ...files, values.count, fault.family ?? 'alone']
    if (fault.oracle !== undefined) node.push(fault.oracle)
    const { stdout, status } = spawnSync(process.execPath, node, {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    })
    const { seed, played, profile, oracle, text } = status === 0 ? JSON.parse(stdout) : {}
    const isFound = status !== 0 || oracle !== undefined
    const how = status === 0 ? `SEED=${seed} (${profile}), the ${played}th: ${oracle}: ${text}` : 'the process ends'
    console.log(`${fault.list}: ${fault.name}\n    ${isFound ? how : `NOT FOUND in ${played}`}`)
    isEachFound &&= isFound
  }
  return isEachFound
}
