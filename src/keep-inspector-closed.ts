/**
 * Keeps Node's inspector closed: it shows the whole memory, secrets included. Node opens it on SIGUSR1 unless the program
 * listens for that signal. So this module has no imports, and each program imports it first.
 */

process.on('SIGUSR1', () => undefined)

// A signal that came before the line above has opened the inspector, or will: another thread of Node asks for it, and the
// event loop may open it once more after the first close. A later close costs nothing.
const inspector = process.getBuiltinModule('node:inspector')
const { NODE_OPTIONS = '' } = process.env
const isWanted = [...process.execArgv, ...NODE_OPTIONS.split(/\s+/)].some((option) =>
  /^--inspect(?!-port|-publish)/.test(option),
)

function closeInspector(): void {
  if (inspector.url() !== undefined) inspector.close()
}

if (!isWanted) {
  closeInspector()
  setImmediate(closeInspector)
  for (const delayMs of [100, 1_000]) setTimeout(closeInspector, delayMs).unref()
}
