#!/bin/sh
# Before: curl -H "Authorization: Bearer $TOKEN" https://api.example.com/v2/example/endpoint
# Now: the proxy gets the token, and renews it in time.
# Exits with 22 if the answer is an error. The content of the answer names the error.
exec curl --silent --show-error --fail-with-body \
  --header "X-Org-Id: ${1:-acme}" \
  "${PROXY_URL:-http://localhost:8080}/v2/example/endpoint"
