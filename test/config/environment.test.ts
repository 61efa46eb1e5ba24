import { expect, test } from 'vitest'
import { environmentWarnings } from '../../src/config/environment.ts'
import { loadConfig } from '../../src/config/load.ts'
import { makeFolder } from './folder.ts'
import { GOOD, refusalOf } from './refusal.ts'

test('a proxy that is ignored gets a warning, without its password', () => {
  const env = { HTTPS_PROXY: 'http://me:hunter2@proxy.example.com', NODE_USE_ENV_PROXY: '1' }
  expect(environmentWarnings(env, false)).toEqual([
    'HTTPS_PROXY is set and ignored: set origin.proxyFromEnv to true to use it',
    'NODE_USE_ENV_PROXY is set and ignored: set origin.proxyFromEnv to true to use it',
  ])
  expect(environmentWarnings(env, true)).toEqual([])
  expect(environmentWarnings({ PATH: '/bin' }, true)).toHaveLength(1)
  expect(environmentWarnings({ PATH: '/bin', HTTPS_PROXY: '' }, false)).toEqual([])
})

test('a missing setting names the variable that was probably meant', async () => {
  const { OAP_APP_ID, ...rest } = GOOD
  expect(await refusalOf({ env: { ...rest, OAP_APPID: OAP_APP_ID } })).toEqual([
    'appId (not set): is required: set it in the config file, or as OAP_APP_ID (OAP_APPID is set: is it meant?)',
  ])
})

test('a removed setting tells what took its place: an error in the file, a warning in the environment', async () => {
  await using folder = await makeFolder()
  const file = await folder.write('proxy.yaml', 'listen: {origins: ["https://app.example.com"]}')
  const told = /is no longer a setting: remove it; the proxy refuses web pages/
  expect(await refusalOf({ file, env: GOOD })).toEqual([expect.stringMatching(told)])
  const { warnings } = await loadConfig({ env: { ...GOOD, OAP_LISTEN_ORIGINS: 'https://app.example.com' } })
  expect(warnings).toEqual(expect.arrayContaining([expect.stringMatching(/^OAP_LISTEN_ORIGINS is no longer/)]))
})
