/** Rejections that need a person: routes that are always rejected, and uploads that could not be sent again. */

import { LRUCache } from 'lru-cache'
import { type RequestRecord, wasNotKept } from '../gateway/request-record.ts'
import { copyOfOrgId, type OrgId } from '../org-id.ts'

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
const MAX_PATH_CHARACTERS = 200
/** Of these in a row, no token has helped. */
const LONG_ROW = 10

export class Rejections {
  readonly #rows = new LRUCache<string, Row>({ max: MAX_ROUTES, ttl: HOUR_MS })
  /** The last upload that was rejected, and not kept. Monotonic milliseconds. */
  #uploadAt = Number.NEGATIVE_INFINITY
  #upload = ''

  requestEnded(record: RequestRecord): void {
    const { rejection, status, code, orgId } = record
    if (code === undefined && status < 400) {
      // Only as long as there is a row, every request costs the look-up of its route.
      if (this.#rows.size > 0) this.#rows.delete(routeOf(record))
    } else if (wasNotKept(record)) {
      this.#uploadAt = record.endedAt
      this.#upload = routeOf(record)
    } else if ((rejection === 'passed' || rejection === 'useless') && status < 500 && orgId !== undefined) {
      const route = routeOf(record)
      const { rejections = 0, isOfRoute = false } = this.#rows.get(route) ?? {}
      const org = copyOfOrgId(orgId as OrgId)
      this.#rows.set(route, { rejections: rejections + 1, status, org, isOfRoute })
    }
  }

  /** `isWell`: the service accepts the token that the Org has now. */
  routes(isWell: (org: OrgId) => boolean) {
    const found: (Row & { readonly route: string })[] = []
    this.#rows.forEach((row, route) => {
      row.isOfRoute ||= isWell(row.org)
      if (row.isOfRoute && row.rejections >= LONG_ROW) found.push({ route, ...row })
    })
    return found
  }

  /** The last one of this hour. */
  upload(now: number): { readonly route: string; readonly leftMs: number } | undefined {
    const leftMs = this.#uploadAt + HOUR_MS - now
    return leftMs > 0 ? { route: this.#upload, leftMs } : undefined
  }
}

/** Segments with a digit are ids, for which `*` stands; but for a version. A copy: a slice would keep the whole head. */
function routeOf({ method, path }: RequestRecord): string {
  const route = path.slice(0, MAX_PATH_CHARACTERS).replaceAll(/\/(?!v\d+(?:\/|$))(?=[^/]*\d)[^/]+/g, '/*')
  return Buffer.from(`${method} ${route}`, 'latin1').toString('latin1')
}
