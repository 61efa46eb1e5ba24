import { expect, test } from 'vitest'
import { type Handshake, TlsPeers } from '../../../src/listener/tls-peers.ts'

const MAX_PAUSE_MS = 5_000
const CHAIN_BYTES = 20_000 // a pause of two seconds

class Opening implements Handshake {
  readonly address: string
  hasStarted = false

  constructor(address = '192.0.2.1') {
    this.address = address
  }

  start(): void {
    this.hasStarted = true
  }
}

/** Handshakes that want to begin now, and those of them that have begun. */
function entering(peers: TlsPeers, now: number, ...openings: Opening[]) {
  for (const opening of openings) peers.enter(opening, now)
  return () => openings.filter(({ hasStarted }) => hasStarted)
}

test('without a reason, handshakes begin at once, all of them', () => {
  const peers = new TlsPeers(MAX_PAUSE_MS)
  expect(entering(peers, 0, new Opening(), new Opening(), new Opening())()).toHaveLength(3)
})

test('behind one that failed, those of its address wait for the pause and for each other; those of others do not', () => {
  const peers = new TlsPeers(MAX_PAUSE_MS)
  peers.blame('192.0.2.1', CHAIN_BYTES, 0)
  expect(entering(peers, 0, new Opening('192.0.2.2'))()).toHaveLength(1)
  const started = entering(peers, 0, new Opening(), new Opening(), new Opening())
  peers.tick(1_900)
  expect(started()).toHaveLength(0)
  peers.tick(2_000)
  const [first] = started()
  peers.tick(2_200)
  expect(started()).toHaveLength(1)
  peers.leave(first as Opening, 2_300) // it has ended well
  expect(started()).toHaveLength(2)
  peers.tick(3_300) // the second stands still
  expect(started()).toHaveLength(3)
})

test('one that leaves while it waits never begins', () => {
  const peers = new TlsPeers(MAX_PAUSE_MS)
  peers.blame('192.0.2.1', CHAIN_BYTES, 0)
  const gone = new Opening()
  const started = entering(peers, 0, gone)
  peers.leave(gone, 100)
  peers.tick(60_000)
  expect(started()).toHaveLength(0)
})

test('no pause is longer than the longest, however much was sent, and an address is forgiven', () => {
  const peers = new TlsPeers(MAX_PAUSE_MS)
  peers.blame('192.0.2.1', 1_000_000, 0)
  const started = entering(peers, 0, new Opening(), new Opening())
  peers.tick(MAX_PAUSE_MS)
  expect(started()).toHaveLength(1)
  peers.tick(2 * MAX_PAUSE_MS)
  expect(started()).toHaveLength(2)
  expect(entering(peers, 2 * MAX_PAUSE_MS, new Opening(), new Opening())()).toHaveLength(2)
})

test('a small excess is forgiven with time, a large one ends connections', () => {
  const peers = new TlsPeers(MAX_PAUSE_MS)
  for (let now = 0; now < 60_000; now += 200) {
    expect(peers.exceeds('192.0.2.1', 3_000, now)).toBe(false) // 15,000 bytes in a second
    peers.tick(now)
  }
  expect(peers.exceeds('192.0.2.1', 80_000, 60_000)).toBe(true)
  expect(entering(peers, 60_000, new Opening())()).toHaveLength(0)
})

test.each([
  ['2001:db8::1', '2001:db8:0:0:ffff::2', true],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::', true],
  ['2001:db8::1', '2001:db8:0:1::1', false],
  ['::1', '::2', true],
  ['::ffff:192.0.2.1', '192.0.2.1', true],
  ['::ffff:192.0.2.1', '::ffff:192.0.2.2', false],
])('%s and %s are the same peer: %s', (one, other, isSame) => {
  const peers = new TlsPeers(MAX_PAUSE_MS)
  peers.blame(one, CHAIN_BYTES, 0)
  expect(entering(peers, 0, new Opening(other))().length === 0).toBe(isSame)
})
