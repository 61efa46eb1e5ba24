# syntax=docker/dockerfile:1

# A Node in long-term support. The package itself still starts on Node 20, which gets no security fixes any more.
ARG NODE_VERSION=24

FROM node:${NODE_VERSION}-slim AS build
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci
COPY tsconfig.json tsconfig.build.json rolldown.config.ts ./
COPY src src
RUN npm run build
# What runs needs no compiler and no tests.
RUN npm prune --omit=dev

FROM node:${NODE_VERSION}-slim
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="org-access-proxy" \
      org.opencontainers.image.description="A sidecar that turns X-Org-Id into the Org's bearer token" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

# Beside a secret there should be nothing that fetches and runs other people's code.
RUN rm -rf /usr/local/lib/node_modules /usr/local/bin/npm /usr/local/bin/npx /usr/local/bin/corepack /opt/yarn-*

WORKDIR /app
COPY package.json LICENSE ./
COPY --from=build /app/node_modules node_modules
COPY --from=build /app/dist dist

# The image's own user, by number: Kubernetes can check a number for not being root's. It owns nothing and writes nothing.
USER 1000:1000

# No EXPOSE: by default both listeners are on loopback, for whoever shares the network namespace.
ENTRYPOINT ["node", "/app/dist/main.js"]
CMD ["serve"]
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 CMD ["node", "/app/dist/main.js", "healthcheck"]
