/** The contents of the Dockerfile. `deploy/check-image.sh` builds and runs the image with a container engine. */

import { existsSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { projectFilesBelow, projectPath, readManifest, readProjectFile } from '../../support/project-files.ts'
import { START_ARGS } from '../../support/spawn-proxy.ts'

interface Instruction {
  readonly name: string
  readonly argument: string
}

/** The instructions of each stage; those before the first FROM come first. */
const [preamble = [], build = [], image = []] = readProjectFile('Dockerfile')
  .replaceAll(/^#.*\n/gm, '')
  .replaceAll(/\\\n\s*/g, '')
  .split(/^(?=FROM )/m)
  .map((stage) =>
    [...stage.matchAll(/^(\w+)\s+(.*)$/gm)].map(([, name = '', argument = '']) => ({
      name,
      argument: argument.trim(),
    })),
  )

/** The arguments of one instruction, in order. */
function argumentsOf(instructions: readonly Instruction[], name: string): string[] {
  return instructions.filter((instruction) => instruction.name === name).map(({ argument }) => argument)
}

const manifest = readManifest()
const entryPoint: string[] = JSON.parse(argumentsOf(image, 'ENTRYPOINT')[0] ?? '')

describe('the image', () => {
  test('is built in two stages, from one Node with long-term support', () => {
    const [, tag = '', version] = /^NODE_IMAGE=(node:(\d+)-slim)$/.exec(argumentsOf(preamble, 'ARG')[0] ?? '') ?? []
    expect(Number(version) % 2).toBe(0)
    expect(Number(version)).toBeGreaterThanOrEqual(24)
    // biome-ignore lint/suspicious/noTemplateCurlyInString: this is how a Dockerfile writes its own variables
    const base = '${NODE_IMAGE}'
    expect(argumentsOf(build, 'FROM')).toEqual([`${base} AS build`])
    expect(argumentsOf(image, 'FROM')).toEqual([base])
    const published = /^FROM (.+)@sha256:[0-9a-f]{64}$/m.exec(readProjectFile('.github/base-image/Dockerfile')) ?? []
    expect(published[1], 'the base of published images').toBe(tag)
  })

  test('contains the program and nothing else', () => {
    expect(argumentsOf(image, 'COPY')).toEqual(['package.json LICENSE ./', '--from=build /app/dist dist'])
    expect(argumentsOf(build, 'RUN')).toEqual([expect.stringMatching(/ npm ci$/), 'npm run build'])
    expect([...build, ...image].map(({ name }) => name)).not.toContain('ADD')
  })

  test('runs as a user who is not root, by number', () => {
    expect(argumentsOf(image, 'USER').at(-1)).toMatch(/^[1-9]\d*:[1-9]\d*$/)
    const lastRun = image.findLastIndex(({ name }) => name === 'RUN' || name === 'COPY')
    expect(image.findIndex(({ name }) => name === 'USER')).toBeGreaterThan(lastRun)
  })

  test('starts the program itself, without a shell that would swallow signals', () => {
    expect(entryPoint).toEqual(['node', ...START_ARGS, '/app/dist/main.js'])
    expect(JSON.parse(argumentsOf(image, 'CMD')[0] ?? '')).toEqual(['serve'])
    expect(argumentsOf(image, 'STOPSIGNAL')).toEqual(['SIGTERM'])
  })

  test('gives look-ups of names enough threads, and so do the other ways to run it', () => {
    const manifests = projectFilesBelow('deploy/kubernetes', '.yaml').filter((path) =>
      readProjectFile(path).includes('args: [serve'),
    )
    expect(manifests).toHaveLength(5)
    const compose = ['docker-compose.yml', 'deploy/compose/fleet.yaml']
    const ways = ['Dockerfile', 'deploy/systemd/org-access-proxy.service', 'package.json', ...compose, ...manifests]
    for (const path of ways) expect(readProjectFile(path), path).toMatch(/UV_THREADPOOL_SIZE\W+(?:value: ")?16\b/)
  })

  test('asks the program itself for its health', () => {
    const [, command] = /CMD (\[.*\])$/.exec(argumentsOf(image, 'HEALTHCHECK')[0] ?? '') ?? []
    expect(JSON.parse(command ?? '')).toEqual(['node', '/app/dist/main.js', 'healthcheck'])
  })

  test('has labels', () => {
    const [label = ''] = argumentsOf(image, 'LABEL')
    expect(label).toContain(`org.opencontainers.image.title="${manifest.name}"`)
    expect(label).toContain(`org.opencontainers.image.licenses="${manifest.license}"`)
  })
})

describe('the builder', () => {
  const [everything, ...exceptions] = readProjectFile('.dockerignore')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
  const copied = [...build, ...image]
    .filter(({ name, argument }) => name === 'COPY' && !argument.startsWith('--from'))
    .flatMap(({ argument }) => argument.split(' ').slice(0, -1))

  test('gets only the files that it copies', () => {
    expect(everything).toBe('*')
    expect(exceptions.map((line) => line.replace(/^!/, '')).sort()).toEqual([...new Set(copied)].sort())
    for (const path of copied) expect([path, existsSync(projectPath(path))]).toEqual([path, true])
  })
})
