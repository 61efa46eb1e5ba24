/** Collects what the fields of one request say, in one pass over them. Decides nothing. */

import { isFieldValue, namedByConnection, requestFieldKind } from '../http/fields.ts'

/** Fields that may occur only once are counted, so that the checks can refuse a second one. */
export class FieldFindings {
  readonly kept: string[] = []
  readonly websocket: string[] = []
  hosts = 0
  host = ''
  orgIds = 0
  orgId = ''
  callerKeys = 0
  callerKey = ''
  requestIds = 0
  requestId = ''
  traceparent = ''
  lengths = 0
  length = ''
  codings = 0
  coding = ''
  expectations = 0
  expectation = ''
  upgrades = 0
  upgrade = ''
  /** The fields that `Connection` names, in lower case. */
  connection: Set<string> | undefined
  isFromBrowser = false
  isForwarded = false
  hasImitation = false
  hasBadValue = false
  /** The values of all `Via` fields. */
  via = ''
}

/** `rawFields` is the flat list as received. */
export function gatherFields(rawFields: readonly string[]): FieldFindings {
  const found = new FieldFindings()
  for (let i = 0; i + 1 < rawFields.length; i += 2) {
    const name = rawFields[i] as string
    const value = rawFields[i + 1] as string
    if (!isFieldValue(value)) found.hasBadValue = true
    switch (requestFieldKind(name)) {
      case 'plain':
        found.kept.push(name, value)
        break
      case 'host':
        found.hosts++
        found.host = value
        break
      case 'org-id':
        found.orgIds++
        found.orgId = value
        break
      case 'connection':
        found.connection = namedByConnection(value, found.connection)
        break
      case 'content-length':
        found.lengths++
        found.length = value
        break
      case 'transfer-encoding':
        found.codings++
        found.coding = value
        break
      case 'request-id':
        found.requestIds++
        found.requestId = value
        found.kept.push(name, value)
        break
      case 'traceparent':
        found.traceparent = value
        found.kept.push(name, value)
        break
      case 'via':
        found.via += value
        found.kept.push(name, value)
        break
      case 'upgrade':
        found.upgrade = found.upgrades++ === 0 ? value : `${found.upgrade}, ${value}`
        break
      case 'websocket':
        found.websocket.push(name, value)
        break
      case 'expect':
        found.expectations++
        found.expectation = value
        break
      case 'origin':
        found.isFromBrowser = true
        break
      case 'sec-fetch-site':
        found.isFromBrowser ||= value !== 'none'
        found.kept.push(name, value)
        break
      case 'forwarded':
        found.isForwarded = true
        found.kept.push(name, value)
        break
      case 'forwarded-host':
        found.isForwarded = true // if that is no reason to refuse, it still must not name another host to the service
        break
      case 'caller-key':
        found.callerKeys++
        found.callerKey = value
        break
      case 'imitation':
        found.hasImitation = true
        break
      case 'dropped':
        break
    }
  }
  return found
}
