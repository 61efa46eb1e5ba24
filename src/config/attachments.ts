/** What lies outside the settings and is named by them: the secret, the caller key, certificates, proxies. */

import type { Secret } from '../secret.ts'
import type { ProxyVariables } from '../undici.ts'
import { readCertificates } from './certificates.ts'
import type { Draft } from './draft.ts'
import type { Environment } from './environment.ts'
import { describeProblem } from './problem.ts'
import { readProxyVariables } from './proxy-variables.ts'
import { checkCallerKey, parseSecret, readSecret } from './secret-text.ts'
import type { SettingKey } from './settings.ts'
import { Unsuitable } from './unsuitable.ts'

const MISSING_SECRET = 'is required: name the file that holds the App secret, or set OAP_APP_SECRET'

export interface Attachments {
  readonly appSecret: Secret | undefined
  readonly callerKey: Secret | undefined
  readonly caCertificates: string | undefined
  readonly proxies: ProxyVariables | undefined
  readonly warnings: readonly string[]
}

/** What cannot be read is reported to the draft, and undefined here. */
export async function readAttachments(draft: Draft, env: Environment): Promise<Attachments> {
  const reader = new AttachmentReader(draft)
  const { 'origin.caFile': caFile, 'origin.proxyFromEnv': usesProxyFromEnv } = draft.values
  return {
    appSecret: await reader.readAppSecret(),
    callerKey: await reader.readCallerKey(),
    caCertificates:
      caFile === undefined ? undefined : await reader.attempt('origin.caFile', () => readCertificates(caFile)),
    proxies: usesProxyFromEnv ? await reader.attempt('origin.proxyFromEnv', () => readProxyVariables(env)) : undefined,
    warnings: reader.warnings,
  }
}

class AttachmentReader {
  readonly warnings: string[] = []
  readonly #draft: Draft

  constructor(draft: Draft) {
    this.#draft = draft
  }

  async readAppSecret(): Promise<Secret | undefined> {
    const { appSecret, appSecretFile } = this.#draft.values
    if (appSecret === undefined) {
      if (appSecretFile !== undefined) return this.#readSecretFile('appSecretFile', appSecretFile)
      // A secret in the wrong place is no missing secret.
      if (!this.#draft.hasProblemWith('appSecret')) this.#draft.reportMissing('appSecretFile', MISSING_SECRET)
      return undefined
    }
    if (appSecretFile !== undefined) {
      this.#draft.report({ key: 'appSecret', message: 'is set beside appSecretFile: keep one, better the file' })
    }
    this.#warn('appSecret', 'is in the environment, which can be read from outside: appSecretFile is safer')
    return this.attempt('appSecret', () => parseSecret(appSecret))
  }

  async readCallerKey(): Promise<Secret | undefined> {
    const path = this.#draft.values['listen.callerKeyFile']
    const key = path === undefined ? undefined : await this.#readSecretFile('listen.callerKeyFile', path)
    if (key !== undefined) await this.attempt('listen.callerKeyFile', () => checkCallerKey(key))
    return key
  }

  async attempt<T>(key: SettingKey, read: () => T | Promise<T>): Promise<T | undefined> {
    try {
      return await read()
    } catch (error) {
      if (!(error instanceof Unsuitable)) throw error
      this.#draft.report({ key, message: error.message })
      return undefined
    }
  }

  #readSecretFile(key: SettingKey, path: string): Promise<Secret | undefined> {
    return this.attempt(key, async () => {
      const { secret, isReadableByOthers } = await readSecret(path)
      if (isReadableByOthers) this.#warn(key, 'can be read by other users of this machine: chmod 600 takes that away')
      return secret
    })
  }

  #warn(key: SettingKey, message: string): void {
    this.warnings.push(describeProblem(this.#draft.locate({ key, message })))
  }
}
