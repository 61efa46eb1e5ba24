// Before: fetch('https://api.example.com/v2/example/endpoint', { headers: { authorization: `Bearer ${token}` } })
// Now: the proxy gets the token, and renews it in time.

const proxyUrl = process.env.PROXY_URL ?? 'http://localhost:8080'
const org = process.argv[2] ?? 'acme'

const response = await fetch(`${proxyUrl}/v2/example/endpoint`, { headers: { 'x-org-id': org } })
if (response.headers.has('proxy-status')) {
  // This is an error of the proxy, not an answer of the service.
  const { code, detail } = await response.json()
  console.error(`${code}: ${detail}`)
  process.exitCode = 1
} else {
  console.log(await response.json())
}
