/** The head for the client that a response of the service becomes; undefined if it is refused. */

import { ResponseHead } from '../../src/gateway/response-head.ts'
import { MalformedMessage } from '../../src/http1/malformed.ts'
import { ResponseParser } from '../../src/http1/response-parser.ts'

export function headOfResponse(...lines: readonly string[]): ResponseHead | undefined {
  let head: ResponseHead | undefined
  const parser = new ResponseParser({
    responseHead: (received) => {
      head = new ResponseHead(received)
    },
    messageContent: () => undefined,
    messageEnd: () => undefined,
  })
  parser.expect(false)
  const bytes = Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1')
  try {
    parser.read(bytes, 0, bytes.length)
  } catch (error) {
    if (!(error instanceof MalformedMessage)) throw error
  }
  return head
}
