/** The service under test. It greets the members of an org. It knows the proxy's address, but no secret. */

import { createServer } from 'node:http'

export function createService({ proxyUrl }) {
  return createServer(async (request, response) => {
    const org = new URL(request.url, 'http://service').searchParams.get('org') ?? ''
    const { status, text } = await greet(proxyUrl, org)
    response.writeHead(status, { 'content-type': 'text/plain' }).end(text)
  })
}

async function greet(proxyUrl, org) {
  const answer = await fetch(`${proxyUrl}/v2/members`, { headers: { 'x-org-id': org } })
  if (answer.ok) {
    const names = await answer.json()
    return { status: 200, text: `Hello ${names.join(' and ')}!` }
  }
  if (!answer.headers.has('proxy-status')) return { status: 502, text: `The service answered ${answer.status}.` }

  const { code } = await answer.json()
  if (code === 'org_access_refused') return { status: 404, text: `${org} has not linked with us yet.` }
  return { status: 503, text: 'Please come back later.' }
}
