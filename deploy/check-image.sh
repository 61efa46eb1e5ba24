#!/bin/sh
# Builds the image and runs it the way it is meant to run: read-only, without capabilities, not as root. Checks health, a
# request, rotation of the secret through a mounted directory, and the stop; then docker-compose.yml. Run it by hand:
#
#   deploy/check-image.sh                  # docker
#   ENGINE=podman deploy/check-image.sh    # podman
#
# BUILD, RUN_OPTIONS and COMPOSE replace the commands where a machine needs others. The container shares the host's network,
# so the ports 8080, 9080 and 9090 of this machine must be free.
set -eu
cd "$(dirname "$0")/.."

ENGINE=${ENGINE:-docker}
case $ENGINE in
  podman) BUILD=${BUILD:-podman build --format docker} ;; # the default format drops HEALTHCHECK
  *) BUILD=${BUILD:-$ENGINE build} ;;
esac
COMPOSE=${COMPOSE-docker compose}
IMAGE=org-access-proxy
HARDENED="--read-only --cap-drop=ALL --security-opt=no-new-privileges --network=host"

work=$(mktemp -d)
cleanup() {
  $ENGINE rm -f -t 2 oap-check-proxy oap-check-sandbox > /dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT

say() { printf '%s\n' "$*"; }
fail() {
  say "FAILED: $*" >&2
  $ENGINE logs oap-check-proxy >&2 2>/dev/null || true
  exit 1
}
# until_ok TEXT COMMAND...: waits up to 15 s for the command to succeed.
until_ok() {
  text=$1
  shift
  for _ in $(seq 150); do
    if "$@" > /dev/null 2>&1; then
      say "ok: $text"
      return
    fi
    sleep 0.1
  done
  fail "$text"
}
status_of() { curl -s -o /dev/null -w '%{http_code}' -H "X-Org-Id: $1" http://127.0.0.1:8080/v2/example/endpoint; }
has_status() { [ "$(status_of "$1")" = "$2" ]; }
logged() { $ENGINE logs oap-check-proxy 2>&1 | grep -q "$1"; }

say "== build"
$BUILD -t $IMAGE .
$ENGINE image inspect $IMAGE | grep -qi '"healthcheck"' || fail "the image has no HEALTHCHECK"
say "ok: the image has a HEALTHCHECK"

say "== run"
# As Kubernetes mounts a Secret: a symlink to a directory that is swapped as a whole.
mkdir "$work/secret" "$work/secret/..1"
printf 'sandbox-secret-that-opens-nothing-else\n' > "$work/secret/..1/app-secret"
ln -s ..1 "$work/secret/..data"
ln -s ..data/app-secret "$work/secret/app-secret"
chmod -R a+rX "$work"
# shellcheck disable=SC2086 # options are several words
$ENGINE run -d --name oap-check-sandbox $HARDENED ${RUN_OPTIONS-} $IMAGE sandbox > /dev/null
# shellcheck disable=SC2086
$ENGINE run -d --name oap-check-proxy $HARDENED ${RUN_OPTIONS-} -v "$work/secret:/run/secrets/oap:ro" \
  -e OAP_APP_ID=sandbox-app -e OAP_APP_SECRET_FILE=/run/secrets/oap/app-secret -e OAP_BASE_URL=http://127.0.0.1:9080 \
  $IMAGE > /dev/null
until_ok "healthcheck inside the container" $ENGINE exec oap-check-proxy node /app/dist/main.js healthcheck
until_ok "a linked Org gets 200" has_status acme 200
until_ok "an Org that is not linked gets 403" has_status initech 403
pid_one() { $ENGINE exec oap-check-proxy sh -c "$1"; }
[ "$(pid_one 'id -u')" = 1000 ] || fail "runs as $(pid_one 'id -u')"
say "ok: runs as uid 1000"
if pid_one 'touch /app/x' 2> /dev/null; then fail "the root file system is writable"; fi
say "ok: the root file system is read-only"
pid_one 'grep -q "^CapEff:[[:space:]]*0*$" /proc/1/status' || fail "has capabilities"
pid_one 'grep -q "^NoNewPrivs:[[:space:]]*1$" /proc/1/status' || fail "may get new privileges"
say "ok: no capabilities, no new privileges"
if pid_one 'test -e /app/node_modules'; then fail "holds packages that are bundled"; fi
pid_one 'test -f /app/dist/third-party-licenses.txt -a -f /app/dist/sbom.cdx.json' || fail "no licences or no SBOM"
say "ok: no bundled package beside the bundle; licences and SBOM are there"

say "== rotation"
curl -s -X PUT -d '{"appSecret": ["sandbox-secret-that-opens-nothing-else", "the-next-secret"]}' \
  http://127.0.0.1:9080/sandbox/switches > /dev/null
mkdir "$work/secret/..2"
printf 'the-next-secret\n' > "$work/secret/..2/app-secret"
chmod -R a+rX "$work"
ln -s ..2 "$work/secret/..next"
mv -T "$work/secret/..next" "$work/secret/..data"
until_ok "the new secret is loaded, without a restart" logged '"msg":"new secret loaded'
curl -s -X PUT -d '{"appSecret": "the-next-secret"}' http://127.0.0.1:9080/sandbox/switches > /dev/null
until_ok "an Org without a token gets 200 with it" has_status globex 200

say "== stop"
$ENGINE stop -t 15 oap-check-proxy > /dev/null
code=$($ENGINE inspect -f '{{.State.ExitCode}}' oap-check-proxy)
[ "$code" = 0 ] || fail "exit code $code"
say "ok: stopped with 0"
$ENGINE rm -f -t 2 oap-check-proxy oap-check-sandbox > /dev/null

if [ -n "$COMPOSE" ]; then
  say "== compose"
  $COMPOSE up -d --no-build
  app_calls() { $COMPOSE logs app 2>&1 | grep -q "org: 'acme'"; }
  until_ok "the app of docker-compose.yml gets 200 through the proxy" app_calls
  until_ok "the status page answers" curl -sf http://127.0.0.1:9090/status
  $COMPOSE down -t 15
fi
say "all good"
