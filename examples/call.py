# Before: Request("https://api.example.com/v2/example/endpoint", headers={"Authorization": f"Bearer {token}"})
# Now: the proxy gets the token, and renews it in time.

import json
import os
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

proxy_url = os.environ.get("PROXY_URL", "http://localhost:8080")
org = sys.argv[1] if len(sys.argv) > 1 else "acme"

request = Request(f"{proxy_url}/v2/example/endpoint", headers={"X-Org-Id": org})
try:
    with urlopen(request) as response:
        print(json.load(response))
except HTTPError as error:
    if "Proxy-Status" not in error.headers:
        raise
    # This is an error of the proxy, not an answer of the service.
    problem = json.load(error)
    sys.exit(f"{problem['code']}: {problem['detail']}")
