/** Frames of RFC 6455: bytes in, client frames out, and server frames back to bytes. No extensions. */

export const OPCODE = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const

export interface Frame {
  readonly isFinal: boolean
  readonly opcode: number
  /** Unmasked. */
  readonly payload: Buffer
}

/** The peer broke the protocol: the connection ends with this close code (RFC 6455 §7.4.1). */
export class WebSocketError extends Error {
  override readonly name = 'WebSocketError'
  readonly closeCode: number

  constructor(closeCode: number, message: string, options?: ErrorOptions) {
    super(message, options)
    this.closeCode = closeCode
  }
}

const MAX_PAYLOAD_BYTES = 256 * 1024 * 1024
const MAX_CONTROL_PAYLOAD_BYTES = 125
const KNOWN_OPCODES: ReadonlySet<number> = new Set(Object.values(OPCODE))
const MASKING_KEY_BYTES = 4

interface FrameHead {
  readonly isFinal: boolean
  readonly opcode: number
  readonly sizeBytes: number
  readonly payloadBytes: number
}

/** Takes bytes as they come and gives the frames that are complete. */
export class FrameReader {
  #chunks: Buffer[] = []
  #bufferedBytes = 0
  /** No frame can be complete before so many are there: a large frame is joined once, not per chunk. */
  #neededBytes = 2;

  /** @throws {WebSocketError} */
  *push(chunk: Buffer): Generator<Frame> {
    this.#chunks.push(chunk)
    this.#bufferedBytes += chunk.length
    while (this.#bufferedBytes >= this.#neededBytes) {
      const buffered = Buffer.concat(this.#chunks)
      this.#chunks = [buffered]
      const head = parseHead(buffered)
      if (typeof head === 'number') {
        this.#neededBytes = head
        continue
      }
      const frameBytes = head.sizeBytes + head.payloadBytes
      if (buffered.length < frameBytes) {
        this.#neededBytes = frameBytes
        continue
      }
      this.#chunks = [buffered.subarray(frameBytes)]
      this.#bufferedBytes -= frameBytes
      this.#neededBytes = 2
      yield { isFinal: head.isFinal, opcode: head.opcode, payload: unmasked(buffered, head) }
    }
  }
}

/** The head, masking key included; or how many bytes it takes to read it. */
function parseHead(bytes: Buffer): FrameHead | number {
  const first = bytes.readUInt8(0)
  const second = bytes.readUInt8(1)
  const opcode = first & 0x0f
  const isFinal = (first & 0x80) !== 0
  if ((first & 0x70) !== 0) throw new WebSocketError(1002, 'a reserved bit is set')
  if (!KNOWN_OPCODES.has(opcode)) throw new WebSocketError(1002, 'unknown opcode')
  if ((second & 0x80) === 0) throw new WebSocketError(1002, 'a client must mask its frames') // RFC 6455 §5.1

  const shortLength = second & 0x7f
  if (opcode >= OPCODE.close && (!isFinal || shortLength > MAX_CONTROL_PAYLOAD_BYTES)) {
    throw new WebSocketError(1002, 'a control frame is fragmented or too long')
  }
  const lengthBytes = shortLength === 127 ? 8 : shortLength === 126 ? 2 : 0
  const sizeBytes = 2 + lengthBytes + MASKING_KEY_BYTES
  if (bytes.length < sizeBytes) return sizeBytes

  const payloadBytes = lengthBytes === 0 ? shortLength : readLength(bytes, lengthBytes)
  if (payloadBytes > MAX_PAYLOAD_BYTES) throw new WebSocketError(1009, 'the frame is too large')
  return { isFinal, opcode, sizeBytes, payloadBytes }
}

function readLength(bytes: Buffer, lengthBytes: 2 | 8): number {
  return lengthBytes === 2 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2))
}

function unmasked(bytes: Buffer, { sizeBytes, payloadBytes }: FrameHead): Buffer {
  const key = bytes.subarray(sizeBytes - MASKING_KEY_BYTES, sizeBytes)
  const payload = Buffer.from(bytes.subarray(sizeBytes, sizeBytes + payloadBytes))
  for (let index = 0; index < payload.length; index += 1) {
    payload[index] = (payload[index] ?? 0) ^ (key[index & 3] ?? 0)
  }
  return payload
}

export function encodeFrame({ isFinal, opcode, payload }: Frame): Buffer {
  return Buffer.concat([encodeHead((isFinal ? 0x80 : 0) | opcode, payload.length), payload])
}

function encodeHead(first: number, payloadBytes: number): Buffer {
  if (payloadBytes < 126) return Buffer.from([first, payloadBytes])
  if (payloadBytes < 0x1_0000) {
    const head = Buffer.from([first, 126, 0, 0])
    head.writeUInt16BE(payloadBytes, 2)
    return head
  }
  const head = Buffer.alloc(10)
  head.writeUInt8(first, 0)
  head.writeUInt8(127, 1)
  head.writeBigUInt64BE(BigInt(payloadBytes), 2)
  return head
}
