// Before: fetch('https://api.example.com/v2/example/endpoint', { headers: { authorization: `Bearer ${token}` } })
// Now the proxy gets the token, and knows when to get a new one.

const proxyUrl = process.env.PROXY_URL ?? 'http://localhost:8080'
const org = process.argv[2] ?? 'acme'

const response = await fetch(`${proxyUrl}/v2/example/endpoint`, { headers: { 'x-org-id': org } })
if (response.headers.has('proxy-status')) {
  // The proxy speaks for itself: the service has not answered this.
  const { code, detail } = await response.json()
  console.error(`${code}: ${detail}`)
  process.exitCode = 1
} else {
  console.log(await response.json())
}
