/**
 * What the peers of TLS connections cost us, by address. OpenSSL works through chains of certificates, KeyUpdates and records
 * of single bytes without a turn of the event loop, and Node has no limits for them. So whoever made us work in vain waits: the
 * next handshakes of that address begin one at a time, with a pause behind each that fails.
 *
 * Behind one address may stand many clients, such as those of a gateway. No pause is longer than half of the time for a handshake.
 */

/** OpenSSL takes up to 9 µs for a byte of a chain with the slowest keys. So an address gets about a tenth of our time. */
const PAUSE_MS_PER_BYTE = 0.1
/** A handshake that stands still does not keep others waiting for longer. */
const TURN_MS = 1_000
/** What an address may send beyond its content, at once and then in each second: 600 KeyUpdates cost some 20 ms. */
const MAX_EXCESS_BYTES = 64 * 1024
const EXCESS_BYTES_PER_SECOND = 16 * 1024

export interface Handshake {
  /** Of the peer. */
  readonly address: string
  start(): void
}

/** An address that made us work in vain. */
class Peer {
  readonly waiting: Handshake[] = []
  current: Handshake | undefined
  /** Monotonic milliseconds. */
  currentSince = 0
  /** Monotonic milliseconds: before that, none of its handshakes begins. */
  nextAt = 0
  /** Monotonic milliseconds: until then, its handshakes wait for each other. */
  watchedUntil = 0
  excessBytes = 0
}

export class TlsPeers {
  readonly #peers = new Map<string, Peer>()
  readonly #maxPauseMs: number
  /** Monotonic milliseconds: of the last `tick`. */
  #tickedAt = 0

  constructor(maxPauseMs: number) {
    this.#maxPauseMs = maxPauseMs
  }

  /** Starts the handshake, now or when it is its turn. */
  enter(handshake: Handshake, now: number): void {
    const peer = this.#peers.get(networkOf(handshake.address))
    if (peer === undefined || peer.watchedUntil <= now) {
      handshake.start()
      return
    }
    peer.waiting.push(handshake)
    this.#startNext(peer, now)
  }

  /** The handshake has ended, well or not. */
  leave(handshake: Handshake, now: number): void {
    const peer = this.#peers.get(networkOf(handshake.address))
    if (peer === undefined) return
    const at = peer.waiting.indexOf(handshake)
    if (at !== -1) peer.waiting.splice(at, 1)
    if (peer.current !== handshake) return
    peer.current = undefined
    this.#startNext(peer, now)
  }

  /** A handshake failed, or took too much, after so many bytes. */
  blame(address: string, bytes: number, now: number): void {
    const peer = this.#peerAt(address)
    peer.nextAt = now + Math.min(bytes * PAUSE_MS_PER_BYTE, this.#maxPauseMs)
    peer.watchedUntil = peer.nextAt + this.#maxPauseMs
  }

  /** So many bytes were no content, and not what content needs. Returns true if they are too many: its connections must end. */
  exceeds(address: string, bytes: number, now: number): boolean {
    const peer = this.#peerAt(address)
    peer.excessBytes += bytes
    if (peer.excessBytes <= MAX_EXCESS_BYTES) return false
    this.blame(address, peer.excessBytes, now)
    return true
  }

  /** To be called several times in each second. */
  tick(now: number): void {
    const forgivenBytes = (EXCESS_BYTES_PER_SECOND * (now - this.#tickedAt)) / 1_000
    this.#tickedAt = now
    for (const [network, peer] of this.#peers) {
      peer.excessBytes = Math.max(0, peer.excessBytes - forgivenBytes)
      if (peer.watchedUntil > now) this.#startNext(peer, now)
      else {
        for (const handshake of peer.waiting.splice(0)) handshake.start()
        if (peer.excessBytes === 0) this.#peers.delete(network)
      }
    }
  }

  #peerAt(address: string): Peer {
    const network = networkOf(address)
    const peer = this.#peers.get(network) ?? new Peer()
    this.#peers.set(network, peer)
    return peer
  }

  /** Any of them: who comes first is who opens the most. */
  #startNext(peer: Peer, now: number): void {
    const isTaken = peer.current !== undefined && now - peer.currentSince < TURN_MS
    if (isTaken || now < peer.nextAt) return
    const [next] = peer.waiting.splice(Math.floor(Math.random() * peer.waiting.length), 1)
    if (next === undefined) return
    peer.current = next
    peer.currentSince = now
    next.start()
  }
}

/** An IPv6 network of 64 bits belongs to one peer. */
function networkOf(address: string): string {
  if (!address.includes(':')) return address
  const [, mapped] = /^::ffff:([\d.]+)$/.exec(address) ?? []
  if (mapped !== undefined) return mapped
  const [left = '', right] = address.split('::')
  const groups = left === '' ? [] : left.split(':')
  // `::` stands for groups of zeros.
  const zeros = right === undefined ? 0 : 8 - groups.length - (right === '' ? 0 : right.split(':').length)
  const whole = [...groups, ...Array<string>(zeros).fill('0'), ...(right ?? '').split(':')]
  return whole.slice(0, 4).join(':')
}
