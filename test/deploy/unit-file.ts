/** Parses a systemd unit file: every assignment of each key, by section. */

export type UnitFile = ReadonlyMap<string, ReadonlyMap<string, readonly string[]>>

export function parseUnitFile(text: string): UnitFile {
  const sections = new Map<string, Map<string, string[]>>()
  let section = new Map<string, string[]>()
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue
    const [, name] = /^\[(\w+)\]$/.exec(line) ?? []
    if (name !== undefined) {
      section = new Map()
      sections.set(name, section)
      continue
    }
    const [, key = '', value = ''] = /^(\w+)=(.*)$/.exec(line) ?? []
    section.set(key, [...(section.get(key) ?? []), value])
  }
  return sections
}
