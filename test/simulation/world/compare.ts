/** Plays each script over real sockets and over simulated ones, and tells where they differ. */

import net from 'node:net'
import { simulatedNet } from './handles.ts'
import { Loop } from './loop.ts'
import { perform, SCRIPTS } from './scripts.ts'
import { Network } from './tcp.ts'
import { World } from './world.ts'

/** So often with other networks. */
const WORLDS = 5

/** Returns the differences. */
export async function compareWithReal(report: (line: string) => void): Promise<string[]> {
  const differences: string[] = []
  const block = (ms: number) => {
    const until = performance.now() + ms
    while (performance.now() < until);
  }
  for (const name of Object.keys(SCRIPTS)) {
    const real = await perform(name, { net, setTimeout, setImmediate, block })
    for (let seed = 1; seed <= WORLDS; seed++) {
      const simulated = await simulate(name, seed)
      if (simulated !== real) {
        differences.push(`${name}, seed ${seed}:\nreal:\n${real}\nsimulated:\n${simulated}`)
        break
      }
    }
    report(name)
  }
  return differences
}

function simulate(name: string, seed: number): Promise<string> {
  return new Promise((resolve) => {
    // The world runs on its own, behind all ticks and promises of others.
    setImmediate(() => {
      const world = new World(seed)
      const network = new Network(world)
      const { network: random } = world
      network.lineTo = () => ({
        latencyMs: random.spread(0.01, 3),
        segmentBytes: Math.ceil(random.spread(100, 65_536)),
        sendBytes: Math.ceil(random.spread(8_192, 262_144)),
        receiveBytes: Math.ceil(random.spread(8_192, 262_144)),
      })
      const loop = new Loop(world)
      const simulated = simulatedNet({ name: 'both', loop, network })
      const { setTimeout } = loop.timers
      const { setImmediate } = loop
      const block = (ms: number) => loop.stall(ms, 'interrupted')
      let told = 'nothing: it hangs'
      loop.next(() => {
        perform(name, { net: simulated, setTimeout, setImmediate, block }).then((events) => {
          told = events
        })
      })
      world.run(60_000)
      resolve([told, ...world.faults].join('\n'))
    })
  })
}
