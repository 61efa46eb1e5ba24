/** Faults that nobody had: each needs an order of events that no other test has. */

/** @type {readonly { name: string, edits: readonly (readonly [string, string, string])[] }[]} */
export const OWN = [
  {
    name: 'an Org at its share of the connections holds up the Orgs behind it',
    edits: [
      [
        'origin/connection-pool.ts',
        'return this.#waiting.find(({ request }) => request.org !== first.request.org)',
        'return undefined',
      ],
    ],
  },
  {
    name: 'a connection that closes gives its place to nobody',
    edits: [
      [
        'origin/connection-pool.ts',
        `    if (unsent !== undefined) this.dispatch(unsent)
    this.#serveNext()
`,
        '    if (unsent !== undefined) this.dispatch(unsent)\n',
      ],
    ],
  },
  {
    name: 'a time limit that is cancelled between its timer and its turn ends its work all the same',
    edits: [
      [
        'clock.ts',
        '    clearTimeout(this.#timeout)\n    clearImmediate(this.#immediate)\n',
        '    clearTimeout(this.#timeout)\n',
      ],
    ],
  },
  {
    name: 'content that was never sent is gone behind an early rejection',
    edits: [
      [
        'gateway/client-content.ts',
        `    if (this.#isWithheld) {
      this.#isTaken = false
      this.#isGone = false
    }
`,
        '',
      ],
    ],
  },
  {
    name: 'a mint that began before a purge brings its token back',
    edits: [
      [
        'token/orgs.ts',
        'if (this.#withoutToken.delete(org.id)) this.#withToken.set(org.id, org)',
        'this.#withoutToken.delete(org.id)\n    this.#withToken.set(org.id, org)',
      ],
      ['token/orgs.ts', 'return org.mint === mint && this.peek(org.id) === org', 'return org.mint === mint'],
    ],
  },
  {
    name: 'a late rejection of the former token counts for its successor',
    edits: [
      ['token/org.ts', '    if (token !== this.current) return\n    const now', '    const now'],
      ['token/request-token.ts', 'if (current !== undefined && !this.#rejected.includes(current)) return current', ''],
    ],
  },
  {
    name: 'the first bytes of a WebSocket, which come with its 101, are lost',
    edits: [
      ['gateway/tunnel.ts', 'if (firstBytes !== undefined && firstBytes.length > 0) socket.unshift(firstBytes)', ''],
    ],
  },
  {
    name: 'a call of the token endpoint that fails keeps its place',
    edits: [['token/mints.ts', '        leave()\n', '        if (failure === undefined) leave()\n']],
  },
  {
    name: 'what had come of an answer that breaks does not reach its client',
    edits: [['gateway/exchange.ts', '    this.#response.writeHeld()\n    // RFC 9209', '    // RFC 9209']],
  },
  {
    name: 'memory for content that has no room is taken all the same',
    edits: [['gateway/client-content.ts', '    this.giveBack(holder, bytes)\n    return false', '    return false']],
  },
  {
    name: 'a rejection whose content never ends keeps its connection',
    edits: [
      [
        'origin/connection.ts',
        "if (state.name === 'discarding') return 0",
        "if (state.name === 'discarding') return undefined",
      ],
    ],
  },
  {
    name: 'a WebSocket that ends and closes at once drops what the other side has not taken',
    edits: [
      ['gateway/tunnel.ts', 'if (socket.readableEnded) to.destroySoon()', 'if (socket.readableEnded) to.destroy()'],
    ],
  },
  {
    name: 'whoever asks a minter while a claim is under way waits for its mint',
    family: 'minter',
    edits: [['minter/token-giver.ts', 'if (mayClaim) return', 'if (mayClaim || holder.isBeingReplaced) return']],
  },
  {
    name: 'replicas share tokens of different declarations',
    family: 'fleet',
    edits: [['app/fleet.ts', 'tokenRequest: declarationOf(tokens)', "tokenRequest: ''"]],
  },
  {
    name: 'an outage of the store is taken for the lease of another',
    family: 'fleet',
    edits: [
      [
        'fleet/fleet.ts',
        "if (reply.kind === 'error') return 'mint'",
        "if (reply.kind === 'error') return { restMs: POLL_MS }",
      ],
    ],
  },
  {
    name: 'the life of a shared token begins at its claim',
    family: 'fleet',
    edits: [['fleet/fleet.ts', 'Math.floor(askedAt - reply.ageMs)', 'Math.floor(askedAt)']],
  },
  {
    name: 'a purge leaves the shared token',
    family: 'fleet',
    edits: [['fleet/fleet.ts', 'this.#runBehind(this.#forget(orgs))', '']],
  },
  {
    name: 'a token that was rejected is taken from the store again',
    family: 'fleet',
    edits: [
      ['fleet/fleet.ts', "replaces === undefined ? '' : this.#keys.markOf(shared, replaces.reveal())", "''"],
      ['fleet/fleet.ts', ', options.replaces?.mintedAt ?? Number.NEGATIVE_INFINITY)', ')'],
    ],
  },
]
