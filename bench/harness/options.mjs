/** The command line of the bench. */

import { parseArgs } from 'node:util'

/**
 * @typedef {object} Options
 * @property {number} rounds How often each candidate is measured in each scenario.
 * @property {number} seconds How long one measurement takes, warm-up apart.
 * @property {readonly string[]} scenarios Names; empty for all.
 * @property {readonly string[]} peers Names of the peers to run beside this program; empty for all.
 * @property {readonly string[]} nodes Paths of further Nodes to run this program on.
 * @property {readonly string[]} besides Folders of built checkouts of other revisions.
 * @property {string} out Where results.json and RESULTS.md go.
 * @property {boolean} builds
 */

export const USAGE = `npm run bench -- [options]

  --rounds N        how often each candidate is measured in each scenario (5)
  --seconds N       how long one measurement takes, warm-up apart (4)
  --scenario NAMES  only these, separated by commas; a wrong name lists all
  --peer NAMES      only these peers beside this program; nothing is saved then
  --node PATH       also this program on this other Node
  --beside FOLDER   also this program of another revision: a checkout that was built
  --out FOLDER      where results.json and RESULTS.md go (bench/results/)
  --no-build        take dist/ and bench/node_modules/ as they are
`

/**
 * @param {readonly string[]} args
 * @param {string} defaultOut
 * @returns {Options}
 */
export function parseOptions(args, defaultOut) {
  const { values } = parseArgs({
    args: [...args],
    options: {
      rounds: { type: 'string', default: '5' },
      seconds: { type: 'string', default: '4' },
      scenario: { type: 'string', multiple: true, default: [] },
      peer: { type: 'string', multiple: true, default: [] },
      node: { type: 'string', multiple: true, default: [] },
      beside: { type: 'string', multiple: true, default: [] },
      out: { type: 'string', default: defaultOut },
      'no-build': { type: 'boolean', default: false },
    },
  })
  return {
    rounds: positive('rounds', values.rounds),
    seconds: positive('seconds', values.seconds),
    scenarios: names(values.scenario),
    peers: names(values.peer),
    nodes: values.node,
    besides: values.beside,
    out: values.out,
    builds: !values['no-build'],
  }
}

/**
 * @param {string} flag
 * @param {string} text
 */
export function positive(flag, text) {
  const value = Number(text)
  if (!Number.isInteger(value) || value < 1) throw new TypeError(`--${flag} takes a whole number of at least 1`)
  return value
}

/** @param {readonly string[]} lists */
function names(lists) {
  return lists.flatMap((list) => list.split(',')).filter((name) => name !== '')
}
