/** Rules of admission with all defaults, one App route and a base URL with a path. */

import type { AdmissionRules } from '../../src/gateway/admission.ts'
import { fieldRulesBeside } from '../../src/gateway/fields.ts'
import { tokenPathTest } from '../../src/gateway/token-paths.ts'
import { HostList, LOOPBACK_NAMES } from '../../src/http1/host.ts'
import type { RequestHead } from '../../src/http1/request-parser.ts'

export const RULES: AdmissionRules = {
  hosts: new HostList(LOOPBACK_NAMES),
  refuseForwarded: true,
  isCallerKey: undefined,
  callers: undefined,
  orgPattern: /^[\w-][\w.~:@+=-]{0,127}$/,
  allowedOrgs: new Set(),
  namedOrgs: undefined,
  sendCookies: false,
  fieldRules: fieldRulesBeside([]),
  allowedRoutes: [],
  isTokenEndpoint: tokenPathTest(),
  allowTokenEndpoint: false,
  appRoutes: [{ method: 'POST', path: '/v2/links', isPrefix: false }],
  targetPrefix: '/api',
  instance: 'this-instance',
  serviceHost: 'service.example',
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
