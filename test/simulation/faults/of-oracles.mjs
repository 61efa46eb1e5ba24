/** For each oracle, a fault that it finds. The others do not count. */

/** @type {readonly { name: string, oracle: string, edits: readonly (readonly [string, string, string])[] }[]} */
export const OF_ORACLES = [
  {
    name: 'one request too many',
    oracle: 'limits',
    edits: [['gateway/reception.ts', 'this.#admitted >= maxInFlight', 'this.#admitted > maxInFlight']],
  },
  {
    name: 'kept content is not given back',
    oracle: 'all is given back',
    edits: [
      [
        'gateway/client-content.ts',
        'if (this.#heldBytes > 0) this.#memory.giveBack(this.#holder, this.#heldBytes)',
        '',
      ],
    ],
  },
  {
    name: 'a place of those who wait is lost',
    oracle: 'all is given back',
    edits: [['token/orgs.ts', '      this.waiting -= 1\n', '      if (org.waiting > 1) this.waiting -= 1\n']],
  },
  {
    name: 'a free connection calls nobody',
    oracle: 'nobody waits beside a free connection',
    edits: [
      [
        'origin/connection-pool.ts',
        `this.#idle.push(connection)\n      this.#serveNext()`,
        'this.#idle.push(connection)',
      ],
    ],
  },
  {
    name: 'a free place calls nobody',
    oracle: 'nobody waits beside a free place',
    edits: [['token/mint-queue.ts', `this.#count(ask, -1)\n        this.#letIn()`, 'this.#count(ask, -1)']],
  },
  {
    name: 'a slow reader is forgotten',
    oracle: 'an answer in bounded time',
    edits: [['gateway/exchange.ts', 'this.#attempt?.resume()', '']],
  },
  {
    name: 'a reset looks like the end of the content',
    oracle: 'content is whole',
    edits: [
      [
        'origin/connection.ts',
        "if (state.name === 'relaying' && this.#parser.endsWithConnection) this.#lookForReset(state)",
        '',
      ],
      ['origin/connection.ts', 'else if (wasReset(socket) || !this', 'else if (!this'],
    ],
  },
  {
    name: 'no look at an idle connection',
    oracle: 'the answer is that request’s',
    edits: [['origin/connection.ts', 'this.#pool.look(this)', 'this.send()']],
  },
  {
    name: 'a token of whoever comes first',
    oracle: 'never another Org’s token',
    edits: [
      [
        'token/orgs.ts',
        '    const org = this.of(id)\n    if (org.mint',
        '    const org = [...this.#withoutToken.values()].find(({ mint }) => mint) ?? this.of(id)\n    if (org.mint',
      ],
    ],
  },
  {
    name: 'a stated end is forgotten',
    oracle: 'no token past its stated end',
    edits: [
      [
        'token/request-token.ts',
        'const mayEnd = token.statedLifeMs < Number.POSITIVE_INFINITY',
        'const mayEnd = false',
      ],
    ],
  },
  {
    name: 'two mints of one Org',
    oracle: 'one mint per Org at a time',
    edits: [
      ['token/orgs.ts', 'if (org.mint !== undefined) {', 'if (org.mint !== undefined && reason === undefined) {'],
    ],
  },
  {
    name: 'a POST goes twice',
    oracle: 'nothing is carried out twice',
    edits: [
      [
        'gateway/exchange.ts',
        'return !hasContent && IDEMPOTENT.has(method)',
        'return !hasContent || IDEMPOTENT.has(method)',
      ],
    ],
  },
  {
    name: 'an early answer is lost with its connection',
    oracle: 'an answer that came arrives',
    edits: [
      [
        'node-internals.ts',
        `if (error instanceof Error && 'code' in error && READS_NO_MORE.has(error.code)) onFailed(given)\n      else given(error)`,
        'given(error)',
      ],
    ],
  },
  {
    name: 'a tunnel has no time limit',
    oracle: 'a tunnel ends',
    edits: [['gateway/tunnel.ts', `this.#reason = 'timeout'`, `return\n    this.#reason = 'timeout'`]],
  },
  {
    name: 'a timer outlives its pool',
    oracle: 'no timer is left',
    edits: [['origin/connection-pool.ts', 'this.#sweep.cancel()', '']],
  },
  {
    name: 'a connection is dropped, not closed',
    oracle: 'no socket is left',
    edits: [['origin/connection.ts', 'this.#socket?.destroy()', '']],
  },
  {
    name: 'a listener stays open',
    oracle: 'no listener is left',
    edits: [
      [
        'listener/server.ts',
        `this.#sweep?.cancel()\n    for (const bound of this.#bound.values()) bound.close()`,
        'this.#sweep.cancel()',
      ],
    ],
  },
  {
    name: 'two lines for one request',
    oracle: 'one log line a request',
    edits: [['app/events.ts', 'log.request(record)', `log.request(record)\n      log.request(record)`]],
  },
  {
    name: 'the service has an eighth of its time',
    oracle: 'no failure without a cause',
    edits: [['origin/connection.ts', 'now - this.#progressedAt < limitMs', 'now - this.#progressedAt < limitMs / 8']],
  },
  {
    name: 'a rejection is not noted',
    oracle: 'the status is what the service says',
    edits: [['token/org.ts', `if (this.isBeingReplaced || this.rejectedAt >= 0) return 'rejected'`, '']],
  },
  {
    name: 'a request that fails is not counted',
    oracle: 'the metrics add up',
    edits: [['app/events.ts', 'metrics.requestEnded(record)', 'if (record.status < 500) metrics.requestEnded(record)']],
  },
  {
    name: 'a start that fails',
    oracle: 'starts',
    edits: [['app/app.ts', 'phase.isListening = true', "throw new Error('it does not listen')"]],
  },
  {
    name: 'a stop does not wait for its WebSockets',
    oracle: 'one log line a tunnel',
    edits: [
      [
        'gateway/tunnel.ts',
        'await Promise.all([...this].map((tunnel) => tunnel.close()))',
        'for (const tunnel of this) void tunnel.close()',
      ],
    ],
  },
  {
    name: 'a drain that waits for ever',
    oracle: 'it stops',
    edits: [
      [
        'app/app.ts',
        'for (const part of parts) await part.close?.()',
        `for (const part of parts) await part.close?.()\n    await new Promise(() => undefined)`,
      ],
    ],
  },
  {
    name: 'a count below zero',
    oracle: 'nothing is thrown',
    edits: [['gateway/reception.ts', 'this.#admitted--', 'this.#admitted -= 2']],
  },
]
