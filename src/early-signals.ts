/**
 * Signals that may come before the program is there. Each program imports this module first, and it imports nothing itself.
 *
 * - SIGTERM, SIGINT and SIGQUIT stop the proxy from here on. The kernel ignores a signal to the first process of a container that
 *   does not listen for it, so a stop that comes while the modules load would be lost.
 * - SIGUSR1 is ignored. It makes Node open its inspector, which shows the whole memory, secrets included.
 */

const words = process.argv.slice(2)
const isCommand = (word: string, i: number) => !word.startsWith('-') && !/^(?:-c|--config)$/.test(words[i - 1] ?? '')
const command = words.find(isCommand) ?? words.find((word) => /^(?:-h|-v|--help|--version)$/.test(word)) ?? 'serve'

if (command === 'serve') {
  // Nothing is open yet. `serve` takes these listeners away when it has its own.
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGQUIT']) process.once(signal, () => process.exit(0))
}

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
const isSmall = /^(?:healthcheck|status|purge|resume|reload|stop|help|version|-h|-v|--help|--version)$/.test(command)
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
