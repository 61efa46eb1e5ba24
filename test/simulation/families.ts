/** What a seed is played as. */

import { fleetStory, playFleet } from './fleet.ts'
import { minterStory, playMinter } from './minter.ts'
import { play } from './stage.ts'
import { storyOf } from './story.ts'

export const FAMILIES = {
  alone: { storyOf, play },
  fleet: { storyOf: fleetStory, play: playFleet as typeof play },
  minter: { storyOf: minterStory, play: playMinter as typeof play },
}
