# syntax=docker/dockerfile:1

# A Node release in long-term support. Published images name it by its digest: see .github/base-image.
ARG NODE_IMAGE=node:24-slim

FROM ${NODE_IMAGE} AS build
WORKDIR /app
COPY package.json package-lock.json ./
# Behind a proxy that opens TLS, give its CA to the build: docker build --secret id=ca,src=ca.pem .
RUN --mount=type=secret,id=ca \
    if [ -f /run/secrets/ca ]; then export NODE_EXTRA_CA_CERTS=/run/secrets/ca; fi; npm ci
COPY LICENSE tsconfig.json tsconfig.build.json rolldown.config.ts ./
COPY config/schema.json config/
COPY src src
ARG REVISION=unknown
RUN npm run build

FROM ${NODE_IMAGE}
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="org-access-proxy" \
      org.opencontainers.image.description="A sidecar that turns X-Org-Id into the Org's bearer token" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

# A container that holds a secret needs no program that downloads and runs code.
RUN rm -rf /usr/local/lib/node_modules /usr/local/bin/npm /usr/local/bin/npx /usr/local/bin/corepack /opt/yarn-*

WORKDIR /app
COPY package.json LICENSE ./
# dist/ holds the packages that it uses.
COPY --from=build /app/dist dist

# Look-ups of names get half of these threads. With the usual four, two names that hang would stop all look-ups.
ENV UV_THREADPOOL_SIZE=16

# By number: Kubernetes can check that a number is not root. This user owns nothing and writes nothing.
USER 1000:1000

# No EXPOSE: by default both listeners are on loopback, for containers that share the network namespace.
# The flag bounds the young generation of the heap. From Node 22 on it may grow four times as large under load.
ENTRYPOINT ["node", "--max-semi-space-size=8", "/app/dist/main.js"]
CMD ["serve"]
STOPSIGNAL SIGTERM
# Docker keeps this line. Builders of OCI images drop it (podman build needs --format docker), and Kubernetes ignores it:
# give the health check to the orchestrator, too, as docker-compose.yml and deploy/kubernetes do.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 CMD ["node", "/app/dist/main.js", "healthcheck"]
