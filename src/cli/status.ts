/** `status`: prints the running proxy's `/status` for people, in the order of the status page. */

import {
  ageText,
  ago,
  counted,
  duration,
  exampleText,
  lastingText,
  recentRows,
  refusalText,
  serviceText,
  stateText,
  whoRows,
} from '../admin/page/words.ts'
import type { StatusDocument } from '../admin/status.ts'
import type { ListenAddress } from '../listener/bind.ts'
import { askAdmin, contentOf } from './admin-client.ts'

const MAX_ORGS = 20

/** Resolves with the exit code: 0 if the proxy is ready. With `asJson`, prints `/status` as it is. */
export async function printStatus(
  address: ListenAddress | 'off',
  asJson = false,
  print: (text: string) => unknown = (text) => process.stdout.write(text),
): Promise<0 | 1> {
  const content = contentOf(await askAdmin(address, `/status?orgs=${MAX_ORGS}`))
  const document: StatusDocument = JSON.parse(content)
  print(asJson ? content : renderStatus(document))
  return document.isReady ? 0 : 1
}

/** Org ids and paths come from clients: control characters in them are percent-encoded. */
function renderStatus(document: StatusDocument): string {
  const { program, service, isReady, checks, warnings, recent, errors, orgs, orgCount } = document
  const width = Math.max(0, ...orgs.map(({ org }) => org.length))
  const who = whoRows(document)
  const whoWidth = Math.max(...who.map(([label]) => label.length))
  const failing = checks.filter(({ isOk }) => !isOk)
  const lines = [
    `${isReady ? stateText(document).toLowerCase() : 'NOT READY'}  org-access-proxy ${program.version} on Node ${program.node}, host ${program.host}, process ${program.pid}, up ${duration(program.uptimeMs)}`,
    serviceText(service),
    ...failing.map(({ name, detail }) => `not ready: ${name}${detail === undefined ? '' : `: ${detail}`}`),
    ...warnings.map((warning) => `warning ${lastingText(warning)}: ${warning.text}`),
    '',
    `last ${duration(recent.spanMs)}`,
    ...recentRows(document).map(([label, text]) => `  ${label.padEnd(8)}  ${text}`),
    '',
    ...who.map(([label, text]) => `  ${label.padEnd(whoWidth)}  ${text}`),
    '',
    errors.length === 0 ? 'no errors since the start' : 'errors since the start, the latest first',
    ...errors.flatMap(errorLines),
    '',
    orgs.length === 0 ? 'no Orgs yet' : `Orgs (${orgCount > orgs.length ? `${orgs.length} of ` : ''}${orgCount})`,
    ...orgs.map(
      (org) => `  ${org.org.padEnd(width)}  ${org.state.padEnd(10)}  ${`${ageText(org)}${refusalText(org)}`.trim()}`,
    ),
  ]
  return lines
    .map(
      (line) =>
        `${line
          .replaceAll(/\p{Cc}/gu, encodeURIComponent)
          .replaceAll('\u00a0', ' ')
          .trimEnd()}\n`,
    )
    .join('')
}

function errorLines({ code, kind, title, detail, count, lastAgoMs, examples }: StatusDocument['errors'][number]) {
  return [
    `  ${kind.padEnd(7)} ${examples[0]?.status} ${code}  ${counted(count, 'time')}, ${ago(lastAgoMs)}: ${title}`,
    ...examples.slice(0, 1).map((last) => `      last: ${exampleText(last)}`),
    `      ${detail}`,
  ]
}
