/** The head for the client that a response of the service becomes; undefined if it is refused. */

import { ResponseHead } from '../../src/gateway/response-head.ts'
import { MalformedMessage } from '../../src/http1/malformed.ts'
import { ResponseParser } from '../../src/http1/response-parser.ts'

/** For what names a response has, if they are not looked at. */
export const UNCHANGED = { location: same, links: same, cookie: same }

function same(value: string): string {
  return value
}

/** A flat list of its names and values. */
export function fieldsOf({ lines }: Pick<ResponseHead, 'lines'>): string[] {
  return lines
    .split('\r\n')
    .slice(0, -1)
    .flatMap((line) => [line.slice(0, line.indexOf(': ')), line.slice(line.indexOf(': ') + 2)])
}

export function headOfResponse(...lines: readonly string[]): ResponseHead | undefined {
  let head: ResponseHead | undefined
  const parser = new ResponseParser({
    responseHead: (received) => {
      head = new ResponseHead(received, UNCHANGED)
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
