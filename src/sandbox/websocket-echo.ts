/** A WebSocket that says back what it is told, frame by frame: a fragmented message returns in the same fragments. */

import type { Socket } from 'node:net'
import { encodeFrame, type Frame, FrameReader, OPCODE, WebSocketError } from './websocket-frames.ts'

/** A peer that leaves the connection open after the closing handshake is not waited for any longer. */
const CLOSE_TIMEOUT_MS = 5000

export class EchoConnection {
  readonly #socket: Socket
  readonly #reader = new FrameReader()
  /** Text is checked over the whole message: a character may lie across two fragments (RFC 6455 §5.6). */
  #utf8: InstanceType<typeof TextDecoder> | undefined
  #isInMessage = false
  #isClosing = false

  constructor(socket: Socket) {
    this.#socket = socket
  }

  /** `head`: what the peer sent right behind its handshake. */
  open(head: Buffer): void {
    this.#socket.on('data', (chunk) => this.#receive(chunk))
    this.#socket.on('drain', () => this.#socket.resume())
    this.#socket.on('end', () => this.#socket.end())
    if (head.length > 0) this.#receive(head)
  }

  #receive(chunk: Buffer): void {
    if (this.#isClosing) return
    try {
      for (const frame of this.#reader.push(chunk)) {
        this.#answer(frame)
        if (this.#isClosing) return
      }
    } catch (error) {
      if (!(error instanceof WebSocketError)) throw error
      this.#close(error.closeCode)
    }
  }

  #answer(frame: Frame): void {
    switch (frame.opcode) {
      case OPCODE.close:
        this.#close(closeCodeOf(frame.payload))
        break
      case OPCODE.ping:
        this.#send({ ...frame, opcode: OPCODE.pong })
        break
      case OPCODE.pong:
        break
      default:
        this.#checkMessage(frame)
        this.#send(frame)
    }
  }

  #checkMessage({ isFinal, opcode, payload }: Frame): void {
    if ((opcode === OPCODE.continuation) !== this.#isInMessage) {
      throw new WebSocketError(1002, 'a message starts inside another, or goes on without having started')
    }
    if (opcode === OPCODE.text) this.#utf8 = new TextDecoder('utf-8', { fatal: true })
    if (opcode === OPCODE.binary) this.#utf8 = undefined
    this.#isInMessage = !isFinal
    try {
      this.#utf8?.decode(payload, { stream: !isFinal })
    } catch (cause) {
      throw new WebSocketError(1007, 'the text is not UTF-8', { cause })
    }
  }

  #send(frame: Frame): void {
    if (!this.#socket.write(encodeFrame(frame))) this.#socket.pause()
  }

  #close(code: number | undefined): void {
    const payload = Buffer.alloc(code === undefined ? 0 : 2)
    if (code !== undefined) payload.writeUInt16BE(code)
    this.#send({ isFinal: true, opcode: OPCODE.close, payload })
    this.#isClosing = true
    this.#socket.end()
    this.#socket.setTimeout(CLOSE_TIMEOUT_MS, () => this.#socket.destroy())
  }
}

/** The code to answer with: the peer's own, none where it gave none (RFC 6455 §5.5.1). */
function closeCodeOf(payload: Buffer): number | undefined {
  if (payload.length === 0) return undefined
  if (payload.length === 1) throw new WebSocketError(1002, 'half a close code')
  const code = payload.readUInt16BE(0)
  const isRegistered = code >= 1000 && code <= 1014 && ![1004, 1005, 1006].includes(code)
  if (!isRegistered && !(code >= 3000 && code <= 4999)) throw new WebSocketError(1002, 'no such close code')
  return code
}
