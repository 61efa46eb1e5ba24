/**
 * The elements of the page. All text is set through `textContent`, because an org id may look like markup. Nothing is
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
