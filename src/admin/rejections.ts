/** Routes that are always rejected: they need a person. */

import { LRUCache } from 'lru-cache'
import type { RequestRecord } from '../gateway/request-record.ts'
import { routeOf } from '../http1/target.ts'
import { copyOfOrgId, type OrgId } from '../org-id.ts'
import { named, type PartWarnings } from '../part.ts'

interface Row {
  /** In a row: an accepted request ends it. */
  rejections: number
  status: number
  /** Of the last one. */
  org: OrgId
  /** The Org uses its tokens with success elsewhere, so it is the route. */
  isOfRoute: boolean
}

const HOUR_MS = 3_600_000
const MAX_ROUTES = 100
/** Of these in a row, no token has helped. */
const LONG_ROW = 10

export class Rejections {
  readonly #rows = new LRUCache<string, Row>({ max: MAX_ROUTES, ttl: HOUR_MS })
  /** The service accepts the token that the Org has now. */
  readonly #isWell: (org: OrgId) => boolean

  constructor(isWell: (org: OrgId) => boolean) {
    this.#isWell = isWell
  }

  requestEnded(record: RequestRecord): void {
    const { rejection, status, code, orgId } = record
    if (code === undefined && status < 400) {
      // Only as long as there is a row, every request costs the look-up of its route.
      if (this.#rows.size > 0) this.#rows.delete(routeOf(record.method, record.path))
    } else if ((rejection === 'passed' || rejection === 'useless') && status < 500 && orgId !== undefined) {
      const route = routeOf(record.method, record.path)
      const { rejections = 0, isOfRoute = false } = this.#rows.get(route) ?? {}
      const org = copyOfOrgId(orgId as OrgId)
      this.#rows.set(route, { rejections: rejections + 1, status, org, isOfRoute })
    }
  }

  warnings(): PartWarnings {
    const routes: string[] = []
    this.#rows.forEach((row, route) => {
      row.isOfRoute ||= this.#isWell(row.org)
      const { isOfRoute, rejections, status, org } = row
      if (isOfRoute && rejections >= LONG_ROW)
        routes.push(`${route} (${status}, ${rejections} times in a row, the last for ${org})`)
    })
    if (routes.length === 0) return {}
    const text = `The service rejects every token on some routes, while it accepts those of the same Orgs on others: ${named(routes)}. Ask the service what the App may do there. Until then, have the apps stop, or refuse the routes with routes.allow: these requests cause useless mints.`
    return { route_rejected: text }
  }
}
