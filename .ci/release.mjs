/**
 * `npm run release:check`, after a build: checks what is released, prints every problem, and leaves the package to publish in
 * `build/`. A push of the tag is all that follows: `.github/workflows/release.yml` runs this too, and publishes.
 */

import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const FREE = ['MIT', 'ISC', 'BSD-2-Clause', 'BSD-3-Clause', 'Apache-2.0', '0BSD', 'BlueOak-1.0.0']
const NEEDED =
  'README.md LICENSE CHANGELOG.md SECURITY.md config/schema.json docs/operations.md dist/main.js ' +
  'dist/sandbox/sandbox.d.ts dist/third-party-licenses.txt dist/sbom.cdx.json'

const problems = []
const read = (path) => readFileSync(path, 'utf8')
const run = (command, ...args) =>
  execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] })
const check = (isGood, problem) => isGood || problems.push(problem)
const manifest = JSON.parse(read('package.json'))
const { version } = manifest

function checkVersion() {
  const [, first, date] = /^## (\S+)(?: \((\d{4}-\d{2}-\d{2})\))?$/m.exec(read('CHANGELOG.md')) ?? []
  const today = new Date().toISOString().slice(0, 10)
  check(first === version, `CHANGELOG.md: begins with ${first}, package.json says ${version}`)
  check(
    date !== undefined && date <= today,
    `CHANGELOG.md: ${first} needs a date that is not after ${today}: "## ${version} (${today})"`,
  )
  const tells = !version.endsWith('.0') || read('docs/upgrading.md').includes(` to ${version}\n`)
  check(tells, `docs/upgrading.md: says nothing about ${version}`)
  const lock = JSON.parse(read('package-lock.json'))
  const locked = [lock.version, lock.packages[''].version]
  check(
    locked.every((each) => each === version),
    `package-lock.json: says ${locked.join(' and ')}`,
  )
  for (const folder of ['base', 'shared']) {
    const path = `deploy/kubernetes/${folder}/kustomization.yaml`
    check(read(path).includes(`newTag: ${version}\n`), `${path}: newTag is not ${version}`)
  }
  const { GITHUB_REF_TYPE: type, GITHUB_REF_NAME: tag } = process.env
  check(type !== 'tag' || tag === `v${version}`, `the tag is ${tag}, not v${version}`)
}

function checkSource() {
  const head = run('git', 'rev-parse', '--short=12', 'HEAD').trim()
  check(run('git', 'status', '--porcelain') === '', 'the work tree has changes: commit them')
  const tagged = spawnSync('git', ['rev-parse', '--short=12', `v${version}^{commit}`], { encoding: 'utf8' })
  check(tagged.status !== 0 || tagged.stdout.trim() === head, `the tag v${version} exists, on another commit`)
  const told = run(process.execPath, 'dist/main.js', '--version')
  check(told.startsWith(`${version} (revision ${head},`), `dist/ is not of ${version}, ${head}: ${told.trim()}`)
}

/** What the bundle holds: each package with its licence, in the bill of materials, under a licence that permits it. */
function checkBundled() {
  const { components } = JSON.parse(read('dist/sbom.cdx.json'))
  const texts = read('dist/third-party-licenses.txt')
  for (const { purl, licenses = [] } of components) {
    const [, name, its] = /^pkg:npm\/(.+)@(.+)$/.exec(decodeURIComponent(purl))
    const ids = licenses.map(({ license, expression }) => license?.id ?? expression)
    check(texts.includes(`${name} ${its}\n\n`), `dist/third-party-licenses.txt: no licence of ${name} ${its}`)
    check(ids.length > 0 && ids.every((id) => FREE.includes(id)), `${name} ${its}: licence ${ids.join() || 'unknown'}`)
  }
  for (const [name, range] of Object.entries(manifest.dependencies)) {
    const real = /^npm:(@?[^@]+)@/.exec(range)?.[1] ?? name
    const isListed = components.some(({ purl }) => decodeURIComponent(purl).startsWith(`pkg:npm/${real}@`))
    check(isListed, `dist/sbom.cdx.json: ${real} is missing`)
  }
}

/** Stages the package, installs it somewhere else, and runs it there. */
function checkPackage() {
  rmSync('build', { recursive: true, force: true })
  run(process.execPath, '.ci/package.mjs', 'build')
  const folder = mkdtempSync(join(tmpdir(), 'oap-release-'))
  try {
    const [{ filename, files }] = JSON.parse(run('npm', 'pack', './build', '--json', '--pack-destination', folder))
    const paths = files.map(({ path }) => path)
    for (const path of NEEDED.split(' ')) check(paths.includes(path), `the package lacks ${path}`)
    for (const path of paths)
      check(!/(^|\/)(node_modules|test|\.env)(\/|$)|\.pem$/.test(path), `the package contains ${path}`)
    run('npm', 'install', '--offline', '--no-audit', '--no-fund', '--prefix', folder, join(folder, filename))
    const installed = readdirSync(join(folder, 'node_modules')).filter((name) => !name.startsWith('.'))
    check(installed.join() === manifest.name, `an installation brings ${installed.join(', ')}`)
    const told = run(process.execPath, join(folder, 'node_modules', manifest.name, 'dist/main.js'), '--version')
    check(told.startsWith(`${version} `), `the installed program says ${told.trim()}`)
    console.log(`package: ${paths.length} files, ${filename}`)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Nothing that builds images is no problem of the release: CI builds it in any case. */
function checkImage() {
  const engine = ['docker', 'podman', 'buildah'].find(
    (name) => spawnSync(name, ['info'], { stdio: 'ignore' }).status === 0,
  )
  if (engine === undefined) return console.log('image: not built, no docker, podman or buildah works here')
  const { status } = spawnSync(
    engine,
    ['build', '--build-arg', `VERSION=${version}`, '-t', `${manifest.name}:${version}`, '.'],
    { stdio: 'inherit' },
  )
  check(status === 0, `the image does not build with ${engine}`)
  if (status === 0) console.log(`image: built with ${engine}; deploy/check-image.sh runs it`)
}

for (const part of [checkVersion, checkSource, checkBundled, checkPackage, checkImage]) {
  try {
    part()
  } catch (error) {
    problems.push(`${part.name}: ${error.message}`)
  }
}
for (const problem of problems) console.error(problem)
if (problems.length > 0) process.exit(1)
console.log(`${version} is ready: git tag v${version} && git push origin v${version}`)
