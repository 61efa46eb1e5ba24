/** All that the small commands need. The build makes one file of it: each file more costs them a part of their time. */
// biome-ignore-all lint/performance/noBarrelFile: everything here is needed together.

export { readVersion, revision } from '../version.ts'
export { loadAdminAddress } from './admin-address.ts'
export { checkHealth } from './admin-client.ts'
export { parseArguments } from './arguments.ts'
export { explainStartupFailure } from './startup-failure.ts'
