/** The trouble of one Org with the secret file is its own. `test/attacks/callers-in-trouble.test.ts` has the other troubles. */

import { execFileSync } from 'node:child_process'
import { unlink, writeFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { randomSecret } from '../../support/canaries.ts'
import { eventually } from '../../support/changes.ts'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

// The secret file becomes a FIFO, like a stalled mount. The read after a 401 must not delay the mints of others.
test('a 401 while the secret file cannot be read fails only its own mint', async () => {
  await using service = await startService({
    mint: (mint) => (mint.org === 'sick' ? { status: 401 } : mint.issue()),
  })
  await using proxy = await startProxy(service)
  await unlink(proxy.secretFile)
  execFileSync('mkfifo', [proxy.secretFile])
  using client = new KeepAliveClient(proxy.port)
  expect((await client.get('/v2/x', 'sick')).status).toBe(502)
  for (let i = 0; i < 20; i++) expect((await client.get('/v2/x', `org-${i}`)).status).toBe(200)

  await unlink(proxy.secretFile)
  const fresh = randomSecret()
  await writeFile(proxy.secretFile, fresh)
  await eventually(() => proxy.output.includes('new secret loaded') || undefined, 'the next secret read', 10_000)
  // The service rejects this secret. The one before it serves, and no request notices.
  for (let i = 20; i < 30; i++) expect((await client.get('/v2/x', `org-${i}`)).status).toBe(200)
  expect(proxy.output).toContain('new secret rejected by the token endpoint')
})
