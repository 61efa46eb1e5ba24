/** The scenarios, in the order of the run and of the results. */

import { latencyScenarios } from './added-latency.mjs'
import { cachedOrgs } from './cached-orgs.mjs'
import { coldFleet } from './cold-fleet.mjs'
import { coldStorm } from './cold-storm.mjs'
import { growthScenarios } from './growth.mjs'
import { idleConnections } from './idle-connections.mjs'
import { turnScenarios } from './in-turns.mjs'
import { minter } from './minter.mjs'
import { orgsInTurns } from './orgs-in-turns.mjs'
import { startUp } from './start-up.mjs'
import { steadyLoad } from './steady-load.mjs'
import { throughputScenarios } from './throughput.mjs'
import { traces } from './traces.mjs'
import { websocket } from './websocket.mjs'

/** @type {readonly import('./scenario.mjs').Scenario[]} */
export const SCENARIOS = [
  ...throughputScenarios,
  ...turnScenarios,
  orgsInTurns,
  ...latencyScenarios,
  steadyLoad,
  traces,
  websocket,
  coldStorm,
  coldFleet,
  minter,
  startUp,
  idleConnections,
  cachedOrgs,
  ...growthScenarios,
]

/**
 * @param {readonly string[]} names Empty for all.
 * @returns {readonly import('./scenario.mjs').Scenario[]}
 */
export function chooseScenarios(names) {
  const unknown = names.find((name) => !SCENARIOS.some((scenario) => scenario.name === name))
  if (unknown !== undefined) {
    throw new TypeError(`there is no scenario ${unknown}, but ${SCENARIOS.map(({ name }) => name).join(', ')}`)
  }
  return names.length === 0 ? SCENARIOS : SCENARIOS.filter(({ name }) => names.includes(name))
}
