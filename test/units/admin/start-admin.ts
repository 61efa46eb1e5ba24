/** The admin listener on a free port, with a real token cache. The test plays the rest of the program. */

import { AdminListener, type AdminOptions } from '../../../src/admin/admin-server.ts'
import { Metrics } from '../../../src/admin/metrics.ts'
import type { AdminSources, ReloadReport } from '../../../src/admin/status.ts'
import { TokenError } from '../../../src/errors.ts'
import type { RequestRecord } from '../../../src/gateway/request-record.ts'
import { HostList, LOOPBACK_NAMES } from '../../../src/http1/host.ts'
import type { OrgId } from '../../../src/org-id.ts'
import type { ReadinessCheck, Status } from '../../../src/part.ts'
import { Orgs } from '../../../src/token/orgs.ts'
import { AccessToken } from '../../../src/token/token-source.ts'
import { ORGS_OPTIONS } from '../../support/orgs-options.ts'
import { NO_GAUGES, record } from './records.ts'

const LIFETIME_MS = 300_000

export interface AdminSettings extends Partial<AdminOptions> {
  readonly version?: string
  readonly callers?: 'none' | 'here' | 'elsewhere'
  readonly quit?: AdminSources['quit']
}

export class AdminUnderTest implements AsyncDisposable {
  readonly metrics = new Metrics({ hasFleet: true, isMinter: true, isSidecar: true })
  readonly orgs: Orgs
  /** A bad state that lasts. */
  paused: { text: string; leftMs: number } | undefined
  readonly reported: unknown[] = []
  readonly #listener: AdminListener
  callers: Status['callers'] = []
  unanswered: Status['unanswered'] = []
  reload: ReloadReport = { outcome: 'unchanged', problems: [], needRestart: [] }
  checks: ReadinessCheck[] = [{ name: 'listening', isOk: true }]
  address = ''

  constructor(settings: AdminSettings) {
    const { version = '0.0.0-test', callers = 'none', quit, ...options } = settings
    this.orgs = new Orgs(
      {
        ...ORGS_OPTIONS,
        lifetimeMs: LIFETIME_MS,
      },
      {
        mint: async (org) => {
          if (org === 'stranger') throw new TokenError('org_access_refused', '', { tokenEndpointStatus: 403 })
          return new AccessToken(`token-${org}`, performance.now())
        },
      },
    )
    const sources: AdminSources = {
      version,
      service: { baseUrl: 'https://api.example.com/', appId: 'my-app', minter: undefined },
      parts: [
        {
          warnings: () => ({ orgs_paused: this.paused }),
          status: () => ({
            ...NO_GAUGES,
            callers: this.callers,
            checks: this.checks,
            requestsInFlight: 2,
            tunnels: 1,
            orgsInFlight: [
              ['acme', 2],
              ['globex', 1],
            ],
            unanswered: this.unanswered,
            orgsOfTunnels: ['initech'],
            requestsWaitingForToken: 1,
            cachedTokens: this.orgs.tokenCount,
          }),
        },
      ],
      metrics: this.metrics,
      orgs: this.orgs,
      purgeTokens: (org) => this.orgs.purge(org).length,
      resumeMints: () => undefined,
      reload: async () => this.reload,
      quit,
    }
    this.#listener = new AdminListener(
      {
        address: { kind: 'tcp', host: 'localhost', port: 0 },
        socketMode: 0o660,
        isRemote: false,
        allowRemote: false,
        refuseForwarded: true,
        rules: () => ({ callers, hosts: new HostList(LOOPBACK_NAMES), orgPattern: /^[\w<>"' =()-]{1,128}$/ }),
        report: (error) => this.reported.push(error),
        ...options,
      },
      sources,
    )
  }

  static async start(settings: AdminSettings = {}): Promise<AdminUnderTest> {
    const admin = new AdminUnderTest(settings)
    admin.address = await admin.#listener.listen()
    return admin
  }

  get port(): number {
    return Number(/\d+$/.exec(this.address)?.[0])
  }

  get url(): string {
    return `http://localhost:${this.port}`
  }

  async mint(...orgs: string[]): Promise<void> {
    for (const org of orgs as OrgId[]) {
      const refused = (error: TokenError) => this.orgs.noteTrouble(org, error)
      await this.orgs.mint(org, 'cold').token.catch(refused)
    }
  }

  /** Like a report of the gateway. */
  requestEnded(given: Partial<RequestRecord> = {}): void {
    this.metrics.requestEnded(record({ endedAt: performance.now(), ...given }))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#listener.close()
    this.orgs.purge()
  }
}
