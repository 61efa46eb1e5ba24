/**
 * The attack: text for which a regular expression takes quadratic time. A `Proxy-Status` of 60 KiB whose quoted string does not
 * end stopped the proxy for 5 seconds, and a path of 14 KB for 0.4 seconds.
 *
 * Each expression of `src/` gets texts that make it go back: a beginning that fits, one piece again and again, and an end that
 * does not fit. Linear work grows by 8 from 2 KiB to 16 KiB, quadratic work by 64. The commands, the configuration, the sandbox
 * and the page are left out: they see no foreign text. `head-cost.test.ts` measures whole heads.
 */

import { expect, test } from 'vitest'
import { projectFilesBelow, readProjectFile } from '../support/project-files.ts'

const SMALL_BYTES = 2 * 1024
const LARGE_BYTES = 16 * 1024
/** Half-way between linear and quadratic on a logarithmic scale. */
const MOST_GROWTH = 23
/** Shorter times say nothing. */
const CLOCK_MS = 0.005

const COMMENT = /^ *(?:\/\*\*?|\*|\/\/).*$/gm
const LITERAL =
  /(?<=[=(,:?&|!{[]\s*|return |^\s*)\/(?![/*])((?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+)\/([dgimsuvy]*)(?=[\s.,;)\]}])/gm

function expressionsOf(path: string): [string, RegExp][] {
  const source = readProjectFile(path).replace(COMMENT, '')
  return [...source.matchAll(LITERAL)].map(([literal, text = '', flags]) => [
    `${path}: ${literal}`,
    new RegExp(text, flags),
  ])
}

const BEGINS = [
  '', '/', ',', '"', '0', 'a:', 'http://', '[', 'access', 'HTTP/1.1 200 ', 'DNS:"', '-----BEGIN a-----', 'a.a.',
] // biome-ignore format: texts
const PIECES = [
  'a', '0', '"', '\\', '/', '%', '%2', ',', ' ', '\t', '\n', '\r', ' ,', ',"', '"a', '\\"', '=', ';', '-', '.', '_', '\u00e5', '/a', 'a.', 'a ',
] // biome-ignore format: texts
const ENDS = ['', '\u0000']

type Text = (bytes: number) => string

function textsFor(expression: RegExp): Text[] {
  const pieces = [...PIECES, ...(expression.source.match(/[A-Za-z-]{3,}/g) ?? [])]
  const repeated = (begin: string, piece: string) =>
    ENDS.map(
      (end): Text =>
        (bytes) =>
          begin + piece.repeat(bytes / piece.length) + end,
    )
  return BEGINS.flatMap((begin) => pieces.flatMap((piece) => repeated(begin, piece)))
}

function fastestMs(expression: RegExp, text: string, times: number): number {
  let best = Number.POSITIVE_INFINITY
  for (let i = 0; i < times; i++) {
    const startedAt = performance.now()
    if (expression.global) text.replace(expression, '')
    else expression.test(text)
    best = Math.min(best, performance.now() - startedAt)
  }
  return best
}

function growthOf(expression: RegExp, text: Text): number {
  const small = text(SMALL_BYTES)
  const large = text(LARGE_BYTES)
  let least = Number.POSITIVE_INFINITY
  // On a busy machine, each run may be interrupted. Quadratic work stays quadratic in every measurement.
  for (let times = 1; times <= 16 && least >= MOST_GROWTH; times *= 2) {
    const smallMs = Math.max(fastestMs(expression, small, times), CLOCK_MS)
    least = Math.min(least, fastestMs(expression, large, times) / smallMs)
  }
  return least
}

const files = projectFilesBelow('src', '.ts').filter((path) => !/^src\/(?:admin\/page|cli|config|sandbox)\//.test(path))
const expressions = files.flatMap(expressionsOf)

test('the search for expressions finds them', () => {
  expect(expressions.length).toBeGreaterThan(50)
  expect(expressions.map(([name]) => name).join('\n')).toContain('src/http1/host.ts: /^(\\[')
})

test.each(expressions)('%s', (_, expression) => {
  for (const text of textsFor(expression)) {
    expect(growthOf(expression, text), JSON.stringify(text(64))).toBeLessThan(MOST_GROWTH)
  }
})

test.each([
  [/(?:"(?:[^"\\]|\\.)*"|[^",])+/g, '\\"'],
  [/[^/]*\d[^/]*/g, 'a'],
  [/ +$/, ' '],
])('the quadratic %s is noticed', (former, piece) => {
  expect(PIECES).toContain(piece)
  const lastedMs = (bytes: number) => fastestMs(former, `${piece.repeat(bytes / piece.length)}\u0000`, 1)
  let greatest = 0
  // On a busy machine, the short run may be interrupted.
  for (let attempt = 0; attempt < 10 && greatest <= MOST_GROWTH; attempt++) {
    greatest = Math.max(greatest, lastedMs(LARGE_BYTES) / lastedMs(SMALL_BYTES))
  }
  expect(greatest).toBeGreaterThan(MOST_GROWTH)
})
