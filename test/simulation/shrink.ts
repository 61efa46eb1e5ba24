/** Takes parts of a story away as long as what is left fails in the same way. */

import type { play } from './stage.ts'
import type { ClientPlan, RequestPlan, Story } from './story.ts'

export function shrink(story: Story, oracle: string, until: number, playStory: typeof play): Story {
  const fails = (candidate: Story) => playStory(candidate).violations.some((violation) => violation.oracle === oracle)
  let best = story
  const reduce = <T>(listOf: (story: Story) => readonly T[], withList: (story: Story, list: readonly T[]) => Story) => {
    let list = listOf(best)
    for (let size = Math.ceil(list.length / 2); list.length > 0; size = Math.floor(size / 2)) {
      for (let at = 0; at < list.length && performance.now() < until; ) {
        const fewer = [...list.slice(0, at), ...list.slice(at + size)]
        const candidate = withList(best, fewer)
        if (fails(candidate)) {
          best = candidate
          list = fewer
        } else at += size
      }
      if (size <= 1) return
    }
  }
  /** Clients with these requests alone. */
  const withRequests = (of: Story, requests: readonly RequestPlan[]): Story => {
    const clients = of.clients.map((client) => ({
      ...client,
      requests: client.requests.filter((request) => requests.includes(request)),
    }))
    return { ...of, clients: clients.filter((client) => client.requests.length > 0) }
  }
  reduce<ClientPlan>(
    ({ clients }) => clients,
    (of, clients) => ({ ...of, clients }),
  )
  reduce<RequestPlan>(({ clients }) => clients.flatMap(({ requests }) => requests), withRequests)
  // Its other lists: what the operator does, standstills, and what a family adds.
  for (const name of Object.keys(story) as (keyof Story)[]) {
    if (name === 'clients' || name === 'lines' || !Array.isArray(story[name])) continue
    reduce<unknown>(
      (of) => of[name] as readonly unknown[],
      (of, list) => ({ ...of, [name]: list }),
    )
  }
  reduce(
    ({ tokens }) => tokens.troubles,
    (of, troubles) => ({ ...of, tokens: { ...of.tokens, troubles } }),
  )
  reduce(
    ({ service }) => service.outages,
    (of, outages) => ({ ...of, service: { ...of.service, outages } }),
  )
  return best
}
