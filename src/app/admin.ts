/** The admin listener, from the configuration. */

import { AdminListener } from '../admin/admin-server.ts'
import type { AdminSources } from '../admin/status.ts'
import { isRemote, locationOfCallers } from '../config/relations.ts'
import type { Config } from '../config/schema.ts'
import { hostsAt } from '../http1/host.ts'
import type { InheritedSockets } from '../listener/bind.ts'
import type { Log } from './log.ts'
import type { Part } from './reload.ts'
import type { LiveRules } from './rules.ts'

/** Undefined if `admin.address` is `off`. */
export function openAdmin(
  config: Config,
  rules: LiveRules,
  { logger }: Log,
  sources: AdminSources,
  sockets: InheritedSockets | undefined,
) {
  const { address, allowRemote } = config.admin
  if (address === 'off') return undefined
  let latest = config
  const listener = new AdminListener(
    {
      ...config.listen,
      address,
      allowRemote,
      isRemote: isRemote(address),
      inheritedSockets: sockets?.admin,
      rules: () => ({
        callers: locationOfCallers(latest),
        hosts: hostsAt(address, latest.listen.hosts),
        orgPattern: rules.current.orgPattern,
      }),
      report: (error: unknown) =>
        logger.error({ detail: error instanceof Error ? error.message : undefined }, 'admin failed'),
    },
    sources,
  )
  const part: Part = {
    use: (taken) => {
      latest = taken
    },
    close: () => listener.close(),
  }
  return { ...part, listen: () => listener.listen() }
}
