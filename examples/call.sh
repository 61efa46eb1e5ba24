#!/bin/sh
# Before: curl -H "Authorization: Bearer $TOKEN" https://api.example.com/v2/example/endpoint
# Now the proxy gets the token, and knows when to get a new one.
# Exits with 22 where the answer is an error; its content says which.
exec curl --silent --show-error --fail-with-body \
  --header "X-Org-Id: ${1:-acme}" \
  "${PROXY_URL:-http://localhost:8080}/v2/example/endpoint"
