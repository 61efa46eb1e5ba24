/** The status page: one document that loads nothing from anywhere and runs only its own script. */

import { createHash } from 'node:crypto'
// Built from src/admin/page/: by rolldown.config.ts in the program, by vitest.config.ts in tests.
import { markup, script, style } from 'status-page-assets'

export interface StatusPage {
  readonly content: string
  readonly contentSecurityPolicy: string
}

export const statusPage: StatusPage = {
  // A function as replacement: `$&` in the script is no pattern.
  content: markup
    .replace('<style></style>', () => `<style>${style}</style>`)
    .replace('<script type="module"></script>', () => `<script type="module">${script}</script>`),
  contentSecurityPolicy: [
    "default-src 'none'",
    // The browser runs what has these hashes, and nothing that is injected.
    `script-src '${hashOf(script)}'`,
    `style-src '${hashOf(style)}'`,
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
