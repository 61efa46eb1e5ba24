/** The sandbox for many requests: every org is linked, and a request for `/v2/as/ORG` gets the org of its token. */

import { type Sandbox, type SandboxOptions, startSandbox } from '../../src/sandbox/sandbox.ts'

export interface OrgEcho extends Sandbox {
  /** Requests for `/v2/as/ORG` with the token of another org: there must be none. */
  readonly mismatches: readonly string[]
}

export async function startOrgEcho(options: SandboxOptions = {}): Promise<OrgEcho> {
  const mismatches: string[] = []
  const sandbox = await startSandbox({
    linked: '*',
    handler: ({ url }, response, org) => {
      if (url !== `/v2/as/${org}`) mismatches.push(`${url} with the token of ${org}`)
      response.setHeader('content-length', Buffer.byteLength(org))
      response.end(org)
    },
    ...options,
  })
  return Object.assign(sandbox, { mismatches })
}
