import { spawnSync } from 'node:child_process'
import { describe, expect, test } from 'vitest'
import { FOUND } from './seeds.ts'

/** The simulation puts its own sockets below Node's `net`, whose inside each version may change. */
const isOnItsNode = process.versions.node.startsWith('20.')

function simulate(...args: readonly string[]): { readonly status: number | null; readonly output: string } {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['test/simulation/main.mjs', ...args], {
    encoding: 'utf8',
  })
  return { status, output: stdout + stderr }
}

describe.skipIf(!isOnItsNode)('the simulation, on Node 20', () => {
  test('its sockets tell what real ones tell', () => {
    expect(simulate('--world')).toMatchObject({ status: 0 })
  })

  test('one seed is one story', () => {
    expect(simulate('--from', '1', '--count', '5', '--twice')).toMatchObject({ status: 0 })
  })

  test('every seed that has failed passes', () => {
    expect(simulate('--seeds', Object.keys(FOUND).join(','))).toMatchObject({ status: 0 })
  })

  test('fixed seeds pass', () => {
    expect(simulate('--from', '1000', '--count', '30')).toMatchObject({ status: 0 })
  })
})
