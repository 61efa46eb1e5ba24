/** Which paths a service may read as its token endpoint. They are closed to apps. */

import { ORG_ID_SEGMENT } from '../org-id.ts'
import { decodeOnce } from './targets.ts'

/** Of version 2.0 of the service. It is closed whatever the configuration says. */
const STANDARD_PATH = '/v2/orgs/{orgId}/access'

/** Stands for an encoded separator: to some services it ends a segment, to others it is part of it. */
const S = '\ue000'
/** Stands for `;parameters`. To some services, a segment of nothing else is none. */
const P = '\ue001'
const ENCODED_SEPARATOR = /%(?:2f|5c)/gi
const PARAMETERS = [new RegExp(`;[^/${S}]*`, 'g'), /;[^/]*/g]
const NAMES = new RegExp(`[^/${S}${P}]+`, 'g')
/** Between two segments. */
const GAP = `${P}?[/${S}][/${S}${P}]*`

/**
 * Returns a test of paths: true if a service may read the path as one of these endpoints, such as `/v2/orgs/{orgId}/access`. An
 * endpoint is compared without a first segment such as `v2`, and whatever precedes it counts as a prefix. Compares after decoding
 * twice, without regard to case, `;parameters` and empty segments. Where services disagree, every reading counts.
 */
export function tokenPathTest(configured = STANDARD_PATH): (path: string) => boolean {
  const all = [...new Set([STANDARD_PATH, configured])].map((endpoint) =>
    endpoint.split('/').filter((segment) => segment !== ''),
  )
  const patterns = all.map((segments) => patternOf(segments.slice(/^v[\d.]+$/i.test(segments[0] ?? '') ? 1 : 0)))
  // Most paths end here.
  const mayMatch = new RegExp(['%', ...all.map((segments) => escaped(lastName(segments)))].join('|'), 'i')
  return (path) =>
    mayMatch.test(path) && readingsOf(path).some((text) => patterns.some((pattern) => pattern.test(text)))
}

/** Each part of the pattern takes linear time: what the lookbehinds hold is matched from its end to its beginning. */
function patternOf(segments: readonly string[]): RegExp {
  const at = segments.indexOf(ORG_ID_SEGMENT)
  const row = (from: number, to: number) => segments.slice(from, to).map((name) => escaped(folded(name)))
  const before = row(0, Math.max(0, at)).join(GAP)
  // One segment has the id, and it may hold encoded separators. Where no segment has a name, an empty one between slashes is none.
  const id = `${P}?[/${S}][/${S}${P}]*(?:[^/${S}${P}][^/]*(?:/[/${S}${P}]*)?|[${S}${P}]/*)(?<=[/${S}])`
  const start = (before === '' ? '' : `(?:^|[/${S}${P}])${before}`) + (at === -1 ? `(?:^|[/${S}${P}])` : id)
  const between = row(at + 1, -1).map((name) => name + GAP)
  const last = escaped(folded(lastName(segments)))
  // Services drop a suffix that picks a format, trim blanks, and stop reading at a control.
  const end = `[^\\S\\p{Cc}]*(?:[.\\p{Cc}][^/${S}]*)?[/${S}${P}]*$`
  return new RegExp(`${last}(?<=[/${S}]\\s*${last})(?=${end})(?<=${start}${between.join('')}\\s*${last})`, 'u')
}

/** The configured suffix may be any other, or none. */
const lastName = (segments: readonly string[]) => (segments.at(-1) ?? '').replace(/\.(?:json|xml)$/i, '')
const escaped = (text: string) => text.replace(/[$()*+.?[\\\]^{|}]/g, '\\$&')

function readingsOf(path: string): string[] {
  const decoded = decodeMarked(decodeMarked(path))
  // Some services decode a target before they look for its query.
  const [withoutQuery = ''] = decoded.split(/[?#]/, 1)
  return [decoded, withoutQuery].flatMap((text) =>
    PARAMETERS.map((parameters) => text.replace(parameters, P).replace(NAMES, folded)),
  )
}

function decodeMarked(path: string): string {
  return decodeOnce(path.replace(ENCODED_SEPARATOR, S))
}

/**
 * A name of octets, without regard to case as any matcher may see it: those that compare character by character take a long s for
 * an s and a Kelvin sign for a k, and those that fold whole strings take a sharp s for two.
 */
function folded(octets: string): string {
  const plain = octets.toLowerCase()
  if (!/[^\0-\x7f]/.test(plain)) return plain
  // The dot of a Turkish i, and characters that nobody sees.
  const text = Buffer.from(octets, 'latin1').toString().toLowerCase().normalize('NFKC').toUpperCase().toLowerCase()
  return text.replaceAll(/\u0307|\p{Cf}/gu, '').replaceAll('/', '_') || P
}
