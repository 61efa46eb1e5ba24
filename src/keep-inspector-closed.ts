/**
 * Keeps Node's inspector closed: it shows the whole memory, secrets included. Node opens it on SIGUSR1 unless the program
 * listens for that signal. So this module has no imports, and each program imports it first.
 */

const [major = 0, minor = 0, patch = 0] = process.versions.node.split('.').map(Number)
const isSupported = major === 20 ? minor > 18 || (minor === 18 && patch > 0) : major > 22 || (major === 22 && minor > 2)

// Said before anything that an older version lacks, such as `getBuiltinModule` below: the rest would end in a stack.
if (!isSupported) {
  const needed = 'Node 20.18.1 or newer, or 22.3.0 or newer'
  process.stderr.write(`org-access-proxy needs ${needed}, and this is Node ${process.versions.node}\n`)
  process.exit(1)
}

process.on('SIGUSR1', () => undefined)

// A signal that came before the line above has opened the inspector, or will: another thread of Node asks for it, and the
// event loop may open it once more after the first close. A later close costs nothing.
// A small command holds no secret, and is over before the inspector would be loaded.
const isSmall = /^(?:healthcheck|status|purge|resume|reload|stop|help|version|-h|-v|--help|--version)$/.test(
  process.argv[2] ?? '',
)
const { NODE_OPTIONS = '' } = process.env
const isWanted = [...process.execArgv, ...NODE_OPTIONS.split(/\s+/)].some((option) =>
  /^--inspect(?!-port|-publish)/.test(option),
)

function closeInspector(): void {
  const inspector = process.getBuiltinModule('node:inspector')
  if (inspector.url() !== undefined) inspector.close()
}

if (!isWanted && !isSmall) {
  closeInspector()
  setImmediate(closeInspector)
  for (const delayMs of [100, 1_000]) setTimeout(closeInspector, delayMs).unref()
}
