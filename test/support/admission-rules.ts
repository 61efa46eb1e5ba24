/** Rules of admission with all defaults, one App route and a base URL with a path. */

import { HostList, LOOPBACK_NAMES } from '../../src/http/host.ts'
import { tokenEndpointTest } from '../../src/http/target.ts'
import type { AdmissionRules } from '../../src/listener/admission.ts'

export const RULES: AdmissionRules = {
  hosts: new HostList(LOOPBACK_NAMES),
  refusesForwarded: true,
  isCallerKey: undefined,
  callers: undefined,
  orgPattern: /^[\w-][\w.~:@+=-]{0,127}$/,
  allowedOrgs: new Set(),
  sendsCookies: false,
  allowedRoutes: [],
  isTokenEndpoint: tokenEndpointTest(),
  allowsTokenEndpoint: false,
  appRoutes: [{ method: 'POST', path: '/v2/links', isPrefix: false }],
  targetPrefix: '/api',
  instance: 'this-instance',
  originHost: 'service.example',
}
