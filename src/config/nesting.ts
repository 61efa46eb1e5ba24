/** A look at a YAML text before it is parsed: the parser recurses, and V8 ends the process where a stack that is nearly full compiles a RegExp. */

/** Settings are nested two deep, lists in them three. */
const MAX_DEPTH = 64
const DEEP_BLOCK = new RegExp(`(?:[-?:]\\s+){${MAX_DEPTH}}|^ {${4 * MAX_DEPTH}}`, 'm')

/** Takes brackets in quotes for brackets, which no configuration has so many of. */
export function isNestedTooDeeply(text: string): boolean {
  return DEEP_BLOCK.test(text) || flowDepth(text) > MAX_DEPTH
}

function flowDepth(text: string): number {
  let depth = 0
  let deepest = 0
  for (const [bracket] of text.matchAll(/[[\]{}]/g)) {
    depth = Math.max(0, depth + (bracket === '[' || bracket === '{' ? 1 : -1))
    deepest = Math.max(deepest, depth)
  }
  return deepest
}
