/** Rules of admission with all defaults, one App route and a base URL with a path. */

import type { AdmissionRules } from '../../src/gateway/admission.ts'
import { HostList, LOOPBACK_NAMES } from '../../src/http1/host.ts'
import type { RequestHead } from '../../src/http1/request-parser.ts'
import { tokenEndpointTest } from '../../src/http1/target.ts'

export const RULES: AdmissionRules = {
  hosts: new HostList(LOOPBACK_NAMES),
  refuseForwarded: true,
  isCallerKey: undefined,
  callers: undefined,
  orgPattern: /^[\w-][\w.~:@+=-]{0,127}$/,
  allowedOrgs: new Set(),
  sendCookies: false,
  allowedRoutes: [],
  isTokenEndpoint: tokenEndpointTest(),
  allowTokenEndpoint: false,
  appRoutes: [{ method: 'POST', path: '/v2/links', isPrefix: false }],
  targetPrefix: '/api',
  instance: 'this-instance',
  originHost: 'service.example',
}

/** A head without content, as the parser tells it. */
export function headOf(method: string, target: string, rawFields: readonly string[]): RequestHead {
  return {
    method,
    target,
    minorVersion: 1,
    rawFields: [...rawFields],
    contentLength: undefined,
    isChunked: false,
    keepsAlive: true,
  }
}
