/** Log lines for people: the same content as the JSON line, on one line that can be read. */

/** `line` is a JSON log line with its newline; what is no JSON object passes unchanged. */
export function prettyLine(line: string): string {
  const record = parsed(line)
  if (record === undefined) return line
  const { time, level, msg, ...rest } = record
  const clock = typeof time === 'string' ? time.slice(11, 23) : ''
  return `${clock} ${String(level).toUpperCase().padEnd(5)} ${String(msg ?? '')}${pairs(rest)}\n`
}

function parsed(line: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(line)
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined
  } catch {
    return undefined
  }
}

function pairs(rest: Record<string, unknown>): string {
  return Object.entries(rest)
    .map(([name, value]) => ` ${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join('')
}
