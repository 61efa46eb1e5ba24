import { spawnSync } from 'node:child_process'
import { describe, expect, test } from 'vitest'
import { FOUND, FOUND_WITH_MINTER } from './seeds.ts'

/** The simulation puts its own sockets below Node's `net`, whose inside each version may change. */
const isOnItsNode = process.versions.node.startsWith('20.')

/** Its output is the message of a failure. */
function simulate(...args: readonly string[]): void {
  const command = ['test/simulation/main.mjs', ...args]
  const { status, stdout, stderr } = spawnSync(process.execPath, command, { encoding: 'utf8' })
  expect(status, stdout + stderr).toBe(0)
}

describe.skipIf(!isOnItsNode)('the simulation, on Node 20', () => {
  test('its sockets tell what real ones tell', () => {
    simulate('--world')
  })

  test('one seed is one story', () => {
    simulate('--from', '1', '--count', '5', '--twice')
  })

  test('every seed that has failed passes', () => {
    simulate('--seeds', Object.keys(FOUND).join(','))
    simulate('--minter', '--seeds', Object.keys(FOUND_WITH_MINTER).join(','))
  })

  test('fixed seeds pass', () => {
    simulate('--from', '1000', '--count', '20')
  })

  test('fixed seeds of a minter with its sidecars pass', () => {
    simulate('--minter', '--from', '1', '--count', '20')
  })

  test('fixed seeds of a fleet with its store pass', () => {
    simulate('--fleet', '--from', '1', '--count', '12')
  })
})
