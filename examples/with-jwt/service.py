# The JWT is read anew for each request: the kubelet replaces it. No redirect is followed: it would carry the JWT elsewhere.
import os, pathlib, urllib.request

class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None

client = urllib.request.build_opener(NoRedirects)

def call_service(path, org):
    token = pathlib.Path(os.environ["PROXY_TOKEN_FILE"]).read_text().strip()
    headers = {"X-Org-Id": org, "X-Proxy-Key": token}
    return client.open(urllib.request.Request(os.environ["PROXY_URL"] + path, headers=headers))
