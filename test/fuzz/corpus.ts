/**
 * Messages to start from, good and known to be bad. `{id}` makes each case one of its own, `{org}` and `{other}` are
 * Org ids.
 */

const HEAD = ['Host: localhost', 'X-Org-Id: {org}']

function message(startLine: string, lines: readonly string[], content = ''): string {
  return `${[startLine, ...lines].join('\r\n')}\r\n\r\n${content}`
}

function request(line: string, lines: readonly string[] = [], content = ''): string {
  return message(`${line} HTTP/1.1`, [...HEAD, ...lines], content)
}

const HIDDEN = message('GET /v2/{id}/hidden HTTP/1.1', ['Host: localhost', 'X-Org-Id: {other}'])
const CHUNKED = 'Transfer-Encoding: chunked'
const CHUNKS = `2\r\nhi\r\n${HIDDEN.length.toString(16)};a=b\r\n${HIDDEN}\r\n0\r\n`

export const REQUESTS: readonly string[] = [
  request('GET /v2/{id}'),
  request('GET /v2/{id}?q=%2F&r=a+b', ['Accept: */*', 'Cookie: a=b', 'traceparent: 00-1-1-00']),
  request('HEAD /v2/{id}'),
  request('DELETE /v2/{id}'),
  request('OPTIONS /v2/{id}'),
  request('PURGE /v2/{id}'),
  request('LIST /v2/{id}'),
  request('POST /v2/{id}', ['Content-Length: 5', 'Content-Type: text/plain'], 'hello'),
  request('PUT /v2/{id}', ['Content-Length: 0']),
  request('PATCH /v2/{id}', [CHUNKED], `${CHUNKS}\r\n`),
  request('POST /v2/{id}', [CHUNKED, 'Trailer: x-t'], `${CHUNKS}X-T: 1\r\nAuthorization: Bearer forged\r\n\r\n`),
  request('DELETE /v2/{id}', [CHUNKED], `${CHUNKS}\r\n`),
  request('GET /v2/{id}', [`Content-Length: ${HIDDEN.length}`], HIDDEN),
  request('POST /v2/{id}', ['Expect: 100-continue', 'Content-Length: 2'], 'hi'),
  request('GET /v2/{id}/1') + message('GET /v2/{id}/2 HTTP/1.1', ['Host: localhost', 'X-Org-Id: {other}']),
  request('POST /v2/{id}/1', ['Content-Length: 2'], 'hi') + request('GET /v2/{id}/2') + request('GET /v2/{id}/3'),
  request('GET http://localhost/v2/{id}'),
  request('GET /v2/{id}', ['Connection: close']),
  request('GET /v2/{id}', ['Connection: x-a, keep-alive', 'X-A: 1', 'Keep-Alive: timeout=5']),
  request('GET /v2/{id}', ['Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABkAAQAAP__']),
  request('GET /v2/{id}', [
    'Connection: Upgrade',
    'Upgrade: websocket',
    'Sec-WebSocket-Version: 13',
    'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
  ]),
  request('POST /v2/{id}', ['Content-Length: 5', CHUNKED], `0\r\n\r\n${HIDDEN}`),
  request('POST /v2/{id}', ['Content-Length: 2', 'Content-Length: 7'], `hi${HIDDEN}`),
  request('POST /v2/{id}', ['Transfer-Encoding: xchunked'], `0\r\n\r\n${HIDDEN}`),
  request('GET /v2/{id}', ['X-Org-Id: {other}']),
  request('GET /v2/../{id}'),
  request('GET //evil.example/v2/{id}'),
  request('POST /v2/orgs/{org}/access'),
  request('CONNECT localhost:80'),
  request('TRACE /v2/{id}'),
  request('OPTIONS *'),
  message('GET /v2/{id} HTTP/1.0', HEAD),
  message('GET /v2/{id} HTTP/1.0', [...HEAD, 'Connection: keep-alive']) + request('GET /v2/{id}/2'),
  message('GET /v2/{id} HTTP/2.0', HEAD),
  message('PRI * HTTP/2.0', [], 'SM\r\n\r\n'),
]

/** What an origin answers. */
export const RESPONSES: readonly string[] = [
  message('HTTP/1.1 200 OK', ['Content-Length: 5', 'X-A: 1'], 'hello'),
  message('HTTP/1.1 200 OK', [CHUNKED], '5\r\nhello\r\n0\r\n\r\n'),
  message('HTTP/1.1 200 OK', [CHUNKED, 'Trailer: x-t'], '5;a=b\r\nhello\r\n6\r\n world\r\n0\r\nX-T: 1\r\n\r\n'),
  message('HTTP/1.1 200 OK', ['Connection: close'], 'until the end of the connection'),
  message('HTTP/1.0 200 OK', [], 'until the end of the connection'),
  message('HTTP/1.1 204 No Content', []),
  message('HTTP/1.1 304 Not Modified', ['ETag: "a"']),
  message('HTTP/1.1 201 Created', ['Location: https://evil.example/', 'Content-Length: 0']),
  message('HTTP/1.1 302 Found', ['Location: /v2/x', 'Set-Cookie: a=b', 'Set-Cookie: c=d', 'Content-Length: 2'], 'go'),
  message('HTTP/1.1 404 Not Found', ['Content-Type: text/html', 'Content-Length: 9'], '<p>no</p>'),
  message('HTTP/1.1 500 ', ['Content-Length: 4'], 'oops'),
  message('HTTP/1.1 100 Continue', []) + message('HTTP/1.1 200 OK', ['Content-Length: 2'], 'hi'),
  message('HTTP/1.1 103 Early Hints', ['Link: </a>']) + message('HTTP/1.1 200 OK', ['Content-Length: 2'], 'hi'),
  message('HTTP/1.1 101 Switching Protocols', ['Connection: upgrade', 'Upgrade: websocket']),
  message('HTTP/1.1 200 OK', ['Content-Length: 5', CHUNKED], '5\r\nhello\r\n0\r\n\r\n'),
  message('HTTP/1.1 200 OK', ['Content-Length: 5', 'Content-Length: 9'], 'hello'),
  message('HTTP/1.1 200 OK', ['Transfer-Encoding: gzip'], 'hello'),
  message('HTTP/1.1 200 OK', ['Content-Length: 2'], 'hi') + message('HTTP/1.1 200 OK', ['Content-Length: 5'], 'stray'),
  message('HTTP/1.1 200 OK', ['Content-Length: 50'], 'cut short'),
  message('HTTP/1.1 200 OK', [CHUNKED], '50\r\ncut short'),
]

const SIZES = '5;a\r\nhello\r\n00A;b=c;d="e;\\"f"\r\n0123456789\r\nfffffff'

/** More to start from for the parser alone. */
export const PARSER_REQUESTS: readonly string[] = [
  message('POST / HTTP/1.1', [CHUNKED], '1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n'),
  message('POST / HTTP/1.1', ['transfer-encoding:CHUNKED  '], `${SIZES}\r\n`),
  message('PUT /a?b=c HTTP/1.1', [CHUNKED], '0;x\r\nA: b\r\nC:\r\n\r\n') + message('GET /2 HTTP/1.1', []),
  message('PUT / HTTP/1.1', [CHUNKED], '0\r\nConnection: close\r\n\r\n') + message('GET /2 HTTP/1.1', []),
  message('PUT / HTTP/1.1', ['Content-Length:\t3\t'], 'abc') + message('GET /2 HTTP/1.1', []),
  message('PUT / HTTP/1.1', ['content-length: 0003 '], 'abc') + message('GET /2 HTTP/1.1', []),
  message('GET / HTTP/1.1', ['Connection: close , x']) + message('GET /2 HTTP/1.1', []),
  message('GET / HTTP/1.1', ['Connection: x', 'Connection:close']) + message('GET /2 HTTP/1.1', []),
  message('GET / HTTP/1.1', ['Proxy-Connection: close']) + message('GET /2 HTTP/1.1', []),
  message('GET / HTTP/1.0', ['Connection: Keep-Alive , close']) + message('GET /2 HTTP/1.0', []),
  message('GET / HTTP/1.0', ['Connection: x\t, keep-alive\t']) + message('GET /2 HTTP/1.0', []),
  message('GET / HTTP/1.0', ['Connection: keep-alive', 'Content-Length: 1'], 'a') + message('GET /2 HTTP/1.0', []),
  message('GET https://u:p@h.example:80/a?b#c HTTP/1.1', ['A:b', 'a: "\t\xe9"\t ', 'A:']),
  message('CONNECT [::1]:80 HTTP/1.1', ['Content-Length: 2'], 'ab'),
  message('OPTIONS * HTTP/1.1', ['Upgrade: x', 'Connection: upgrade', 'Content-Length: 2'], 'ab'),
  message('LIST / HTTP/1.1', [CHUNKED], '1\r\na\r\n0\r\n\r\n') + message('foo-BAR /2 HTTP/1.1', []),
  message("M-SEARCH /a%00~!$&'()*+,;=:@?/?#?# HTTP/1.1", []),
  `\r\n\r\n${message('GET / HTTP/1.1', ['Host: a'])}\r\n${message('GET / HTTP/1.1', ['Host: a'])}`,
]

export const PARSER_RESPONSES: readonly string[] = [
  message('HTTP/1.1 200 OK', [CHUNKED], '1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n'),
  message('HTTP/1.1 200', ['transfer-encoding:CHUNKED  '], `${SIZES}\r\n`),
  message('HTTP/1.1 200 OK', [CHUNKED], ' 2 \r\nhi\r\n3 ; a=b\r\nabc\r\n0\t\r\n\r\n'),
  message('HTTP/1.1 999 x', [CHUNKED], '2;\r\nhi\r\n0; a="\r\n\r\n'),
  message('HTTP/1.1 200 OK', ['Content-Length : 2', 'X\t: y'], 'hi'),
  message('HTTP/1.1 200 OK', [CHUNKED], '0;x\r\nA: b\r\nC :\r\nConnection: close\r\n\r\n'),
  message('HTTP/1.1 200  \xe9\tOK ', ['Content-Length: 0003 '], 'abc'),
  message('HTTP/1.1 102 ', ['Content-Length: 2']) + message('HTTP/1.0 299 x', ['Connection: keep-alive']),
  message('HTTP/1.1 101 x', ['Upgrade: websocket, x', 'Connection: x, Upgrade', CHUNKED], 'first bytes'),
  message('HTTP/1.1 101 x', ['Upgrade: websocket', 'Connection: x,\tupgrade\t'], 'first bytes'),
  message('HTTP/1.1 204 x', ['Content-Length: 2'], 'ab'),
  message('HTTP/1.1 304 x', [CHUNKED], '0\r\n\r\n'),
]

function minted(json: string, ...lines: readonly string[]): string {
  return message(
    'HTTP/1.1 200 OK',
    ['Content-Type: application/json', ...lines, `Content-Length: ${json.length}`],
    json,
  )
}

/** What a token endpoint answers, with this token in it. */
export function mintsOf(token: string): readonly string[] {
  const json = JSON.stringify({ orgAccessToken: token })
  const inner = `orgAccessToken":"${token}`
  return [
    minted(json),
    minted(`{ "orgAccessToken" : "${token}", "expiresIn": 60 }`, 'Date: Thu, 01 Jan 1970 00:00:00 GMT'),
    message(
      'HTTP/1.1 200 OK',
      [CHUNKED],
      `2\r\n{"\r\n${inner.length.toString(16)}\r\n${inner}\r\n2\r\n"}\r\n0\r\n\r\n`,
    ),
    message('HTTP/1.1 200 OK', ['Connection: close'], json),
    minted(`{"orgAccessToken":"${token}","orgAccessToken":"${token}"}`),
    minted('{"orgAccessToken":null}'),
    minted(`["${token}"]`),
    minted(`<html>${token}</html>`),
    minted(''),
    message('HTTP/1.1 204 No Content', []),
    message('HTTP/1.1 302 Found', [`Location: https://evil.example/${token}`, 'Content-Length: 0']),
    message('HTTP/1.1 403 Forbidden', [`Content-Length: ${token.length}`], token),
    message('HTTP/1.1 503 Service Unavailable', ['Retry-After: 1', `Content-Length: ${token.length}`], token),
  ]
}

export function fill(text: string, values: Readonly<Record<string, string>>): string {
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => values[name] ?? whole)
}
