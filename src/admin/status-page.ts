/** The status page: one document that asks nobody but the listener it came from, and runs nothing but its own script. */

import { createHash } from 'node:crypto'
import { CLIENT_SCRIPT } from './page/client.ts'
import { LISTS_SCRIPT } from './page/lists.ts'
import { MARKUP } from './page/markup.ts'
import { PLOTS_SCRIPT } from './page/plots.ts'
import { STYLE } from './page/style.ts'
import { TEXT_SCRIPT } from './page/text.ts'

export interface StatusPage {
  readonly content: string
  readonly contentSecurityPolicy: string
}

const SCRIPT = TEXT_SCRIPT + PLOTS_SCRIPT + LISTS_SCRIPT + CLIENT_SCRIPT

/** Its pieces are fixed, so their hashes let them run and nothing else. */
export const statusPage: StatusPage = {
  content: `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>org-access-proxy</title>
<link rel="icon" id="icon" href="data:,">
<style>${STYLE}</style>
</head>
<body>${MARKUP}<script type="module">${SCRIPT}</script>
</body>
</html>
`,
  contentSecurityPolicy: [
    "default-src 'none'",
    `script-src '${hashOf(SCRIPT)}'`,
    `style-src '${hashOf(STYLE)}'`,
    "connect-src 'self'",
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    // No text can become markup, whatever the script does with it.
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; '),
}

function hashOf(text: string): string {
  return `sha256-${createHash('sha256').update(text).digest('base64')}`
}
