/**
 * Elements and texts of the page. All text is set through `textContent`, because an org id may look like markup. Nothing is
 * replaced that did not change, so that selections and open details survive each poll.
 */

export function byId(id: string): HTMLElement {
  return part(document, `#${id}`)
}

/** The first descendant that the selector matches. */
export function part(parent: ParentNode, selector: string): HTMLElement {
  const found = parent.querySelector<HTMLElement>(selector)
  if (found === null) throw new Error(`the page has no ${selector}`)
  return found
}

export function setText(node: Element, text: string): void {
  if (node.textContent !== text) node.textContent = text
}

/** Shows each text in the descendant that its selector matches. */
export function setTexts(parent: ParentNode, texts: Readonly<Record<string, string>>): void {
  for (const [selector, text] of Object.entries(texts)) setText(part(parent, selector), text)
}

/** Shows one copy of the template per item, in the order of the items. An element keeps its item by the item's key. */
export function setItems<T>(
  parent: Element,
  template: string,
  items: readonly T[],
  keyOf: (item: T, i: number) => string,
  update: (element: HTMLElement, item: T, i: number) => void,
): void {
  const children = [...parent.children] as HTMLElement[]
  const before = new Map(children.map((child) => [child.dataset.key, child]))
  for (const [i, item] of items.entries()) {
    const key = keyOf(item, i)
    const element = before.get(key) ?? copyOf(template)
    element.dataset.key = key
    before.delete(key)
    update(element, item, i)
    const present = parent.children[i] ?? null
    if (present !== element) parent.insertBefore(element, present)
  }
  for (const element of before.values()) element.remove()
}

/** Shows one line per text. */
export function setLines(parent: Element, lines: readonly string[]): void {
  setItems(parent, 'line', lines, (_, i) => String(i), setText)
}

function copyOf(template: string): HTMLElement {
  const { content } = byId(template) as HTMLTemplateElement
  return content.firstElementChild?.cloneNode(true) as HTMLElement
}

/** Two digits at least, and no more below ten. */
export function number(value: number): string {
  return value >= 10
    ? Math.round(value).toLocaleString('en')
    : value.toLocaleString('en', { maximumSignificantDigits: 2 })
}

/** `1 mint`, `2 mints`. */
export function counted(value: number, noun: string): string {
  return `${number(value)} ${noun}${value === 1 ? '' : 's'}`
}

export function rate(perSecond: number): string {
  return `${number(perSecond)}/s`
}

export function milliseconds(ms: number): string {
  return ms < 1000 ? `${number(ms)} ms` : `${number(ms / 1000)} s`
}

/** In the two largest units. */
export function duration(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000))
  const [minutes, hours, days] = [Math.floor(seconds / 60), Math.floor(seconds / 3_600), Math.floor(seconds / 86_400)]
  const both = (first: string, amount: number, unit: string) => (amount === 0 ? first : `${first} ${amount} ${unit}`)
  if (days > 0) return both(`${days} d`, hours % 24, 'h')
  if (hours > 0) return both(`${hours} h`, minutes % 60, 'min')
  return minutes > 0 ? both(`${minutes} min`, seconds % 60, 's') : `${seconds} s`
}

export function ago(ms: number): string {
  return ms < 1000 ? 'just now' : `${duration(ms)} ago`
}

/** In UTC, as in the log. */
export function utc(instant: string): string {
  return `${instant.slice(0, 19).replace('T', ' ')} UTC`
}
