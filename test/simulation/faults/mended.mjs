/**
 * Faults that the program had and people found, put back: what mended each is taken away again. `edits`: file below `src`, text, and what
 * stands in its place.
 */

/** A request that waits for its token fails with the connection that it has. */
const WITH_ITS_CONNECTION = [
  ['origin/connection.ts', `if (state.name === 'awaiting token') this.#enter(state, 'lost')\n    else {`, '{'],
  ['origin/connection.ts', '    lost: true,\n', `    lost: true,\n    'awaiting token': true,\n`],
  ['origin/connection.ts', `if (name === 'opening' ||`, `if (name === 'opening' || name === 'awaiting token' ||`],
]

/** @type {readonly { name: string, edits: readonly (readonly [string, string, string])[] }[]} */
export const MENDED = [
  {
    name: 'a request that moves to another connection waits in two places, and gives one back',
    edits: [
      [
        'token/request-token.ts',
        `    this.#obtaining ??= this.#obtainInPlace().finally(() => {
      this.#obtaining = undefined
    })
    return this.#obtaining
`,
        '    return this.#obtainInPlace()\n',
      ],
      ['token/request-token.ts', '.finally(this.#leave)', '.finally(() => this.#leave?.())'],
      ...WITH_ITS_CONNECTION,
    ],
  },
  {
    name: 'renewals for which nobody waits go before requests that wait',
    edits: [
      [
        'token/mint-queue.ts',
        'const rank = requester === undefined ? 2 : Number(ask.isTroubled)',
        'const rank = Number(ask.isTroubled)',
      ],
    ],
  },
  {
    name: 'renewing ahead stops for good',
    edits: [
      [
        'token/org.ts',
        `    if (isLater || (reason === 'rejected' && !isSame)) this.#planRenewal()
    else this.#tryAgainLater()
`,
        `    if (reason === 'refresh' && !isLater) this.#renewsAhead = false
    if (!isSame || isLater) this.#planRenewal()
    else this.#renewAgeMs = Number.POSITIVE_INFINITY
`,
      ],
      [
        'token/org.ts',
        '    this.#renewAgeMs = lifeMs - aheadMs\n',
        '    this.#renewAgeMs = this.#renewsAhead ? lifeMs - aheadMs : lifeMs\n',
      ],
      ['token/org.ts', '  #useless = 0', '  #renewsAhead = true\n  #useless = 0'],
    ],
  },
  {
    name: 'the age of a token counts from the call',
    edits: [
      [
        'token/token-endpoint.ts',
        'new AccessToken(token, clock.now(), Math.max(statedLifeMs - tookMs, 0))',
        'new AccessToken(token, clock.now() - tookMs, statedLifeMs)',
      ],
    ],
  },
  {
    name: 'polls for what is not there replace good tokens',
    edits: [['token/org.ts', 'this.#rejectedRow >= LONG_ROW', 'this.#row >= LONG_ROW']],
  },
  {
    name: 'with a wrong secret at the start, requests wait',
    edits: [
      ['token/mints.ts', 'this.isAppUnknown ? 1 : Number.POSITIVE_INFINITY', 'Number.POSITIVE_INFINITY'],
      ['token/mints.ts', 'this.rejection ?? OVER_BUDGET', 'OVER_BUDGET'],
    ],
  },
  {
    name: 'the 401 of one Org makes the proxy not ready',
    edits: [
      [
        'token/mints.ts',
        'return this.isAppUnknown && clock.now() < this.#rejectedUntil',
        'return this.rejection !== undefined',
      ],
    ],
  },
  {
    name: 'an App that was revoked is not told',
    edits: [['token/token-warnings.ts', 'isAppUnknown || isAppRevoked', 'isAppUnknown']],
  },
  {
    name: 'one Org may fill a quarter of the waiting places',
    edits: [['token/orgs.ts', 'const ORG_SHARE = 2', 'const ORG_SHARE = 4']],
  },
  {
    name: 'time limits fire at the end of a standstill',
    edits: [
      [
        'clock.ts',
        `    noteStandstill(this.#due)
    const leftMs = this.#startedAt + this.#ms - runningTime()
    // A timer may be early by a part of a millisecond.
    if (leftMs >= 1) this.#arm(Math.ceil(leftMs))
    else this.#immediate = setImmediate(this.#act)
`,
        '    this.#act()\n',
      ],
    ],
  },
  {
    name: 'a purge keeps the refusal of the Org',
    edits: [['token/orgs.ts', '    else this.#withoutToken.delete(only)\n', '']],
  },
  {
    name: 'resume keeps the pause behind a useless mint',
    edits: [['app/tokens.ts', '    this.orgs.endPauses()\n', '']],
  },
  {
    name: 'a status that ends tokens of an app that only POSTs is not named',
    edits: [['token/org.ts', 'this.#helped !== undefined && this.#helped.rows >= 2', 'false']],
  },
  {
    name: 'a client that was not asked for its content is timed out',
    edits: [['gateway/client-content.ts', ' && !this.#isPaused && !this.#isUninvited', ' && !this.#isPaused']],
  },
  {
    name: 'the end of a WebSocket behind bytes that nobody takes is not bounded',
    edits: [
      [
        'gateway/tunnel.ts',
        'slow.find(({ takenAt }) => now - takenAt >= this.#keeper.idleTimeoutMs)',
        'slow.find(({ takenAt }) => now < takenAt)',
      ],
    ],
  },
  {
    name: 'the tail of a WebSocket is lost to a receiver that stalls',
    edits: [
      [
        'gateway/tunnel.ts',
        'else if (slow.length === 0 && now - this.#movedAt >= END_MS) this.#expired()',
        'else if (this.leftAt !== undefined && now - this.#movedAt >= END_MS) this.#expired()',
      ],
    ],
  },
  {
    name: 'a part of an empty line keeps an idle connection open',
    edits: [
      [
        'http1/message-parser.ts',
        ` ||
      (this.#state === START_LINE_LF && this.#held === '\\r')`,
        '',
      ],
    ],
  },
  {
    name: 'one Org may have all requests in flight',
    edits: [['gateway/reception.ts', 'Math.ceil(maxInFlight * ORG_SHARE)', 'maxInFlight']],
  },
  {
    name: 'a request that waits for its token fails with the connection that it has',
    edits: WITH_ITS_CONNECTION,
  },
]
