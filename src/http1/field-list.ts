/** Flat lists of the names and values of fields, as the parsers tell them, in latin1. */

/** The fields that `Connection` names, in lower case. Usually there are none, and the result is undefined. */
export function namedByConnection(value = ''): Set<string> | undefined {
  if (value === '' || value === 'keep-alive' || value === 'close' || value === 'Keep-Alive') return undefined
  let named: Set<string> | undefined
  // At commas only, as Node's parser does: by another reading, one of the two would take a request for an upgrade.
  for (const option of value.toLowerCase().split(',')) {
    const [name = '', ...others] = option.split(/[\t ]+/).filter((word) => word !== '')
    if (others.length > 0 || name === '' || name === 'close' || name === 'keep-alive') continue
    named ??= new Set()
    named.add(name)
  }
  return named
}

/** All values in a flat list, joined as one (RFC 9110 §5.3). */
export function joinedValue(fields: readonly string[], lowerCaseName: string): string {
  return fields.filter((_, i) => i % 2 === 1 && fields[i - 1]?.toLowerCase() === lowerCaseName).join(', ')
}

/** The first value in a flat list; empty if there is none. */
export function fieldValue(fields: readonly string[], lowerCaseName: string): string {
  return fields.find((_, i) => i % 2 === 1 && fields[i - 1]?.toLowerCase() === lowerCaseName) ?? ''
}

/** The lines of a flat list, each with its end. */
export function fieldLines(fields: readonly string[]): string {
  let text = ''
  for (let i = 0; i + 1 < fields.length; i += 2) text += `${fields[i]}: ${fields[i + 1]}\r\n`
  return text
}

/** A copy of the flat list without the fields of these lower-case names. */
export function withoutFields(fields: readonly string[], names: ReadonlySet<string>): string[] {
  const kept: string[] = []
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i] as string
    if (!names.has(name.toLowerCase())) kept.push(name, fields[i + 1] as string)
  }
  return kept
}
