/** Why a file could not be read, in words that help. */

export function explainUnreadable(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown error'
  switch (code) {
    case 'ENOENT':
    case 'ENOTDIR':
      return `does not exist (${code}): check the path`
    case 'EISDIR':
      return 'is a folder (EISDIR): container engines make one where the file to be mounted is missing'
    case 'EACCES':
    case 'EPERM':
      return (
        `cannot be read by uid ${process.getuid?.() ?? '?'} (${code}): let that user read it; ` +
        'a file-backed compose secret keeps the owner and mode of the file on the host, whatever uid and mode say'
      )
    default:
      return `cannot be read (${code})`
  }
}
