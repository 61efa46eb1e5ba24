import { expect, test } from 'vitest'
import { reportHealth } from '../../src/admin/health.ts'

const checks = [
  { name: 'listening', isOk: true },
  { name: 'warm-orgs', isOk: false, detail: '2 of 5 tried' },
  { name: 'app-credentials', isOk: false },
]

test('one failing check is enough to be not ready, and every one is named', () => {
  expect(reportHealth(checks, false)).toEqual({ isOk: false, text: 'not ready: warm-orgs, app-credentials\n' })
  expect(reportHealth(checks.slice(0, 1), false)).toEqual({ isOk: true, text: 'ok\n' })
})

test('told at length, each check has its line', () => {
  expect(reportHealth(checks, true).text.split('\n')).toEqual([
    '[+]listening ok',
    '[-]warm-orgs failed: 2 of 5 tried',
    '[-]app-credentials failed',
    'not ready: warm-orgs, app-credentials',
    '',
  ])
})
