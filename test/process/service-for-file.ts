/** One service for all tests of a file, and the environment of a proxy for it. */

import { afterAll, beforeAll } from 'vitest'
import { type Service, type ServiceOptions, startService } from '../support/service.ts'
import { environmentFor } from '../support/spawn-proxy.ts'

export interface ServiceForFile {
  readonly service: Service
  readonly env: Readonly<Record<string, string>>
}

/** Call it at the top of a file. */
export function serviceForFile(options?: ServiceOptions): ServiceForFile {
  let service: Service
  let env: Awaited<ReturnType<typeof environmentFor>>
  beforeAll(async () => {
    service = await startService(options)
    env = await environmentFor(service)
  })
  afterAll(async () => {
    await env[Symbol.asyncDispose]()
    await service[Symbol.asyncDispose]()
  })
  return {
    get service() {
      return service
    },
    get env() {
      return env
    },
  }
}
