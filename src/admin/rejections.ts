/** Rejections that need a person: routes that are always rejected, and uploads that could not be sent again. */

import { LRUCache } from 'lru-cache'
import { type RequestRecord, wasNotKept } from '../gateway/request-record.ts'
import { routeOf } from '../http1/target.ts'
import { copyOfOrgId, type OrgId } from '../org-id.ts'
import { type Finding, named, type PartWarnings } from '../part.ts'

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
  /** The last upload that was rejected, and not kept. Monotonic milliseconds. */
  #uploadAt = Number.NEGATIVE_INFINITY
  #upload = ''

  constructor(isWell: (org: OrgId) => boolean) {
    this.#isWell = isWell
  }

  requestEnded(record: RequestRecord): void {
    const { rejection, status, code, orgId } = record
    if (code === undefined && status < 400) {
      // Only as long as there is a row, every request costs the look-up of its route.
      if (this.#rows.size > 0) this.#rows.delete(routeOf(record.method, record.path))
    } else if (wasNotKept(record)) {
      this.#uploadAt = record.endedAt
      this.#upload = routeOf(record.method, record.path)
    } else if ((rejection === 'passed' || rejection === 'useless') && status < 500 && orgId !== undefined) {
      const route = routeOf(record.method, record.path)
      const { rejections = 0, isOfRoute = false } = this.#rows.get(route) ?? {}
      const org = copyOfOrgId(orgId as OrgId)
      this.#rows.set(route, { rejections: rejections + 1, status, org, isOfRoute })
    }
  }

  warnings(now: number): PartWarnings {
    return { route_rejected: this.#routesRejected(), upload_not_kept: this.#uploadNotKept(now) }
  }

  #routesRejected(): string | undefined {
    const routes: string[] = []
    this.#rows.forEach((row, route) => {
      row.isOfRoute ||= this.#isWell(row.org)
      const { isOfRoute, rejections, status, org } = row
      if (isOfRoute && rejections >= LONG_ROW)
        routes.push(`${route} (${status}, ${rejections} times in a row, the last for ${org})`)
    })
    if (routes.length === 0) return undefined
    return `The service rejects every token on some routes, while it accepts those of the same Orgs on others: ${named(routes)}. Ask the service what the App may do there. Until then, have the apps stop, or refuse the routes with routes.allow: these requests cause useless mints.`
  }

  #uploadNotKept(now: number): Finding | undefined {
    const leftMs = this.#uploadAt + HOUR_MS - now
    if (leftMs <= 0) return undefined
    const text = `In the last hour, the token of an upload had ended, and not all of its content was kept to be sent again (${this.#upload}): its app got the rejection. Set tokens.lifetime below the life of a token, or raise replay.maxBody.`
    return { text, leftMs }
  }
}
