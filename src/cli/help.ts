/** What `--help` prints: every call on one screen of 24 by 80. */

export const helpText = `org-access-proxy turns X-Org-Id into the Org's bearer token: apps call it on
localhost, it holds the App secret and the tokens, so that no app has to.

Usage: org-access-proxy [COMMAND] [OPTIONS]

  serve [--config FILE]               run the proxy (as no command does)
  check [--config FILE] [--mint ORG]  validate, and print every setting with its
                                      value and where it came from; --mint gets
                                      one real token and tells how that went
  sandbox [--port N]                  run the stand-in service alone
  healthcheck [--config FILE]         ask the running proxy's /livez; 0 or 1
  --help, --version                   this text; the version

Settings come from the environment (OAP_ and the key in upper snake case, such
as OAP_TOKENS_MAX_ORGS for tokens.maxOrgs), then from FILE (YAML; OAP_CONFIG
names it too), then from the defaults. Three have none:

  OAP_APP_ID=my-app OAP_APP_SECRET_FILE=/run/secrets/app-secret \\
  OAP_BASE_URL=https://api.example.com org-access-proxy

Exit codes: 0 stopped after draining, 1 failed, 78 configuration refused.
`
