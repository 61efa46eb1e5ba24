/**
 * The address of the admin listener alone, for the commands that ask a running proxy. They start often, on machines that are
 * busy, so nothing is loaded that they do not need: not the declaration of the settings, and the YAML parser only for a file
 * that may hold the address.
 */

import { readFile } from 'node:fs/promises'
import { DEFAULT_ADMIN_ADDRESS, parseAddressOrOff } from '../config/address.ts'
import { ConfigRefused, quoted, Unsuitable } from '../config/problem.ts'
import type { LoadOptions } from '../config/settings-file.ts'
import type { ListenAddress } from '../listener/bind.ts'

const VARIABLE = 'OAP_ADMIN_ADDRESS'
const KEY = 'admin.address'

/**
 * Whatever is wrong with other settings, or with the file as a whole, the proxy may serve: what the file says of this one counts,
 * or else the default.
 * @throws {ConfigRefused} With the problem of that setting.
 */
export async function loadAdminAddress({ file, env }: LoadOptions): Promise<ListenAddress | 'off'> {
  const given = env[VARIABLE] || undefined
  const { text, source } = given === undefined ? await inFile({ file, env }) : { text: given, source: VARIABLE }
  try {
    return parseAddressOrOff(text)
  } catch (error) {
    if (!(error instanceof Unsuitable)) throw error
    throw new ConfigRefused([{ at: KEY, source, message: `${quoted(text)} ${error.message}`.trimStart() }])
  }
}

async function inFile({ file, env }: LoadOptions): Promise<{ readonly text: string; readonly source: string }> {
  const unset = { text: DEFAULT_ADMIN_ADDRESS, source: 'default' }
  const path = file ?? (env['OAP_CONFIG'] || undefined)
  const written = path === undefined ? '' : await readFile(path, 'latin1').catch(() => '')
  if (!written.includes('admin')) return unset
  const { isMapping, openSettingsFile } = await import('../config/settings-file.ts')
  const opened = await openSettingsFile({ file, env })
  const group = opened?.content['admin']
  const text = isMapping(group) ? group['address'] : opened?.legibleAt(KEY)
  return typeof text === 'string' && text !== '' ? { text, source: opened?.positionOf(KEY) ?? '' } : unset
}
