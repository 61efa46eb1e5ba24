/** What a seed is played as. */

import { minterStory, playMinter } from './minter.ts'
import { play } from './stage.ts'
import { storyOf } from './story.ts'

export const FAMILIES = {
  alone: { storyOf, play },
  minter: { storyOf: minterStory, play: playMinter as typeof play },
}
