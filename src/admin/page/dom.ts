/**
 * Elements and texts of the page. All text is set through `textContent`, because an org id may look like markup. Nothing is
 * replaced that did not change, so that selections and open details survive each poll.
 */

export function byId(id: string): HTMLElement {
  const found = document.getElementById(id)
  if (found === null) throw new Error(`the page has no #${id}`)
  return found
}

/** The first descendant with the class. */
export function part(parent: Element, className: string): HTMLElement {
  const found = parent.querySelector<HTMLElement>(`.${className}`)
  if (found === null) throw new Error(`the page has no .${className}`)
  return found
}

export function element(name: string, className: string, text = ''): HTMLElement {
  const made = document.createElement(name)
  made.className = className
  made.textContent = text
  return made
}

export function setText(node: Element, text: string): void {
  if (node.textContent !== text) node.textContent = text
}

/** Shows one child per line of text. */
export function setLines(parent: Element, name: string, lines: readonly string[]): void {
  while (parent.children.length > lines.length) parent.lastElementChild?.remove()
  while (parent.children.length < lines.length) parent.append(document.createElement(name))
  for (const [i, child] of [...parent.children].entries()) setText(child, lines[i] ?? '')
}

/** Shows one child per item, in the order of the items. A child keeps its item by the item's key. */
export function setItems<T>(
  parent: Element,
  items: readonly T[],
  keyOf: (item: T) => string,
  create: () => HTMLElement,
  update: (child: HTMLElement, item: T) => void,
): void {
  const before = new Map<string | undefined, HTMLElement>()
  for (const child of parent.children) if (child instanceof HTMLElement) before.set(child.dataset.key, child)
  for (const [i, item] of items.entries()) {
    const key = keyOf(item)
    const child = before.get(key) ?? create()
    child.dataset.key = key
    before.delete(key)
    update(child, item)
    const present = parent.children[i] ?? null
    if (present !== child) parent.insertBefore(child, present)
  }
  for (const child of before.values()) child.remove()
}

const integers = new Intl.NumberFormat('en')
const decimals = new Intl.NumberFormat('en', { maximumSignificantDigits: 2 })

export function count(value: number): string {
  return integers.format(value)
}

/** `1 mint`, `2 mints`. */
export function counted(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? '' : 's'}`
}

export function decimal(value: number): string {
  return value >= 10 ? integers.format(Math.round(value)) : decimals.format(value)
}

export function rate(perSecond: number): string {
  return `${decimal(perSecond)}/s`
}

export function milliseconds(ms: number): string {
  return ms < 1000 ? `${decimal(ms)} ms` : `${decimal(ms / 1000)} s`
}

/** In the two largest units. */
export function duration(ms: number): string {
  const seconds = Math.floor(ms / 1000)
  const units: [number, string][] = [
    [Math.floor(seconds / 86400), 'd'],
    [Math.floor(seconds / 3600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'min'],
    [seconds % 60, 's'],
  ]
  const first = units.findIndex(([amount]) => amount > 0)
  if (first === -1) return '0 s'
  const shown = units.slice(first, first + 2).filter(([amount]) => amount > 0)
  return shown.map(([amount, unit]) => `${amount} ${unit}`).join(' ')
}

export function ago(ms: number): string {
  return ms < 1000 ? 'just now' : `${duration(ms)} ago`
}
