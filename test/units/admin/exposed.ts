/** Reads the text format of Prometheus strictly, like a scraper. */

const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\[\\"n])*)"(?:,|$)/y

export interface Exposed {
  /** Type by name of the family. */
  readonly types: ReadonlyMap<string, string>
  /** Value by name and labels as written. */
  readonly values: ReadonlyMap<string, number>
  readonly labelNames: ReadonlySet<string>
}

export function parseExposition(text: string): Exposed {
  const types = new Map<string, string>()
  const values = new Map<string, number>()
  const labelNames = new Set<string>()
  if (!text.endsWith('\n')) throw new Error('the last line has no end')
  for (const line of text.split('\n')) {
    const [, typed, type] = /^# TYPE (\S+) (\S+)$/.exec(line) ?? []
    if (typed !== undefined && type !== undefined) {
      if (types.has(typed)) throw new Error(`${typed} comes twice`)
      types.set(typed, type)
    }
    if (line === '' || line.startsWith('#')) continue
    const [, name, labels = '', value] = SAMPLE.exec(line) ?? []
    if (name === undefined || value === undefined) throw new Error(`no sample: ${line}`)
    for (const label of labelsOf(labels)) labelNames.add(label)
    const key = labels === '' ? name : `${name}{${labels}}`
    if (values.has(key)) throw new Error(`${key} comes twice`)
    values.set(key, value === '+Inf' ? Number.POSITIVE_INFINITY : Number(value))
  }
  return { types, values, labelNames }
}

function labelsOf(text: string): string[] {
  const names: string[] = []
  LABEL.lastIndex = 0
  while (LABEL.lastIndex < text.length) {
    const [, name] = LABEL.exec(text) ?? []
    if (name === undefined) throw new Error(`no labels: ${text}`)
    names.push(name)
  }
  return names
}
