/** One service for all tests of a file, and the environment of a proxy for it. */

import { afterAll, beforeAll } from 'vitest'
import { type Service, type ServiceOptions, startService } from './service.ts'
import { environmentFor } from './spawn-proxy.ts'

/** Call it at the top of a file. Its fields are there when the first test begins. */
export function serviceForFile(options?: ServiceOptions) {
  const served = {} as { service: Service; env: Awaited<ReturnType<typeof environmentFor>> }
  beforeAll(async () => {
    served.service = await startService(options)
    served.env = await environmentFor(served.service)
  })
  afterAll(async () => {
    await served.env[Symbol.asyncDispose]()
    await served.service[Symbol.asyncDispose]()
  })
  return served
}
