/**
 * Node hands every request with an `Upgrade` to the upgrade listener, and with it the raw connection. Only a WebSocket
 * handshake (or CONNECT, to be refused) may go that way; `h2c` and others go on as HTTP without the field. Newer versions
 * ask `shouldUpgradeCallback`; Node 20 reads `upgrade` of the message, which is why it is an accessor here.
 */

import { IncomingMessage } from 'node:http'

export class UpgradableMessage extends IncomingMessage {
  /** Not `#private`: Node's constructor writes it, and no such field is there before that constructor has returned. */
  declare private asksForUpgrade: boolean

  get upgrade(): boolean {
    return this.asksForUpgrade && (this.method === 'CONNECT' || isWebSocketHandshake(this))
  }

  /** Node's constructor and parser write here. */
  set upgrade(asks: boolean | null) {
    this.asksForUpgrade = asks === true
  }
}

export function isWebSocketHandshake(message: IncomingMessage): boolean {
  const { rawHeaders } = message
  let upgrades = 0
  let isWebSocket = false
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    if (rawHeaders[i]?.length !== 7 || rawHeaders[i]?.toLowerCase() !== 'upgrade') continue
    upgrades++
    isWebSocket = rawHeaders[i + 1]?.toLowerCase() === 'websocket'
  }
  return upgrades === 1 && isWebSocket && message.method === 'GET'
}
