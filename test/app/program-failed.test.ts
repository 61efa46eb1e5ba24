/** A fault of our own leaves one line with its stack, and none of the values that its message may quote. */

import { expect, test } from 'vitest'
import { Metrics } from '../../src/admin/metrics.ts'
import { eventsOf } from '../../src/app/events.ts'
import { Log } from '../../src/app/log.ts'

test('the line of a fault of the proxy', () => {
  const lines: string[] = []
  const destination = { write: (line: string) => void lines.push(line) }
  const log = new Log({ level: 'error', requests: 'off', sample: 1, format: 'json', destination })
  const events = eventsOf(log, new Metrics())
  events.programFailed(new TypeError('of a\n    value "from the client"'), 'request-1')
  expect(lines).toHaveLength(1)
  const line = JSON.parse(lines[0] ?? '')
  expect(line).toMatchObject({ level: 'error', requestId: 'request-1', error: 'TypeError' })
  expect(line.stack.join()).toContain('program-failed.test.ts')
  expect(lines[0]).not.toContain('from the client')
})
