/** The plots of the last five minutes: SVG stretched to its box, with the text in HTML beside it, which must not stretch. */

import type { Series } from '../history.ts'
import { byId, duration, element, milliseconds, part, rate, setLines, setText } from './dom.ts'

const SVG_NAMESPACE = 'http://www.w3.org/2000/svg'
const SLOTS = 150
const WIDTH = 300
const HEIGHT = 100

type Values = readonly (number | null)[]
type ValuesOf = (history: Series) => Values

/** Positions of the values on the vertical axis. */
interface Arrangement {
  /** The upper edge of each line. */
  readonly tops: readonly Values[]
  readonly ticks: readonly number[]
  /** Height of a value, 0 to 1. */
  readonly share: (value: number) => number
}

interface Line {
  readonly valuesOf: ValuesOf
  readonly value: HTMLElement
  readonly area: Element
  readonly stroke: Element
}

interface Plot {
  readonly figure: HTMLElement
  readonly title: string
  readonly svg: Element
  readonly crosshair: Element
  readonly lines: readonly Line[]
  readonly format: (value: number) => string
  readonly arrange: (values: readonly Values[]) => Arrangement
}

/** All plots show the same moment: a slot, or undefined for the latest. */
let shownSlot: number | undefined
let shownHistory: Series | undefined

const plots: readonly Plot[] = [
  plot('requests', 'Requests per second', rate, linear, [
    ['requests', 'blue', (history) => history.requestsPerSecond],
    ['errors of proxy and service', 'red', (history) => history.errorsPerSecond],
  ]),
  plot('latency', 'Latency of requests', milliseconds, decades, [
    ['p99', 'violet', (history) => history.p99Ms],
    ['p50', 'blue', (history) => history.p50Ms],
  ]),
  plot('lookups', 'Token lookups per second', rate, stack, [
    ['token at hand', 'green', (history) => history.lookups.ready],
    ['waited for a mint', 'blue', (history) => history.lookups.waited],
    ['old token', 'amber', (history) => history.lookups.stale],
    ['repeated', 'red', (history) => history.lookups.replayed],
  ]),
]

export function drawPlots(history: Series | undefined): void {
  if (history === undefined) return
  shownHistory = history
  for (const each of plots) drawPlot(each, history)
}

function showMoment(slot: number | undefined): void {
  shownSlot = slot
  drawPlots(shownHistory)
}

function plot(
  id: string,
  title: string,
  format: Plot['format'],
  arrange: Plot['arrange'],
  lines: readonly (readonly [name: string, colour: string, valuesOf: ValuesOf])[],
): Plot {
  const figure = newFigure(id, title)
  const frame = part(figure, 'frame')
  const svg = frame.getElementsByTagName('svg')[0] ?? frame
  figure.classList.toggle('is-stacked', arrange === stack)
  const crosshair = svgElement('line', { class: 'crosshair', y1: 0, y2: HEIGHT })
  const drawn = lines.map(([name, colour, valuesOf]) => {
    const key = element('li', `key ${colour}`)
    const value = element('span', 'value')
    key.append(element('span', 'name', name), value)
    part(figure, 'legend').append(key)
    const area = svgElement('path', { class: `area ${colour}` })
    return { valuesOf, value, area, stroke: svgElement('path', { class: `stroke ${colour}` }) }
  })
  svg.append(...drawn.map((line) => line.area), ...drawn.map((line) => line.stroke), crosshair)
  frame.addEventListener('pointermove', (event) => {
    const box = frame.getBoundingClientRect()
    showMoment(Math.round(((event.clientX - box.left) / box.width) * (SLOTS - 1)))
  })
  frame.addEventListener('pointerleave', () => showMoment(undefined))
  return { figure, title, svg, crosshair, lines: drawn, format, arrange }
}

function newFigure(id: string, title: string): HTMLElement {
  const template = byId('plot')
  const content = template instanceof HTMLTemplateElement ? template.content.firstElementChild : null
  const figure = content?.cloneNode(true)
  if (!(figure instanceof HTMLElement)) throw new Error('the page has no template for plots')
  figure.id = id
  setText(figure.getElementsByTagName('h2')[0] ?? figure, title)
  byId('plots').append(figure)
  return figure
}

function drawPlot({ figure, title, svg, crosshair, lines, format, arrange }: Plot, history: Series): void {
  const values = lines.map((line) => line.valuesOf(history))
  const first = SLOTS - (values[0]?.length ?? 0)
  const { tops, ticks, share } = arrange(values)
  const x = (i: number) => ((first + i) / (SLOTS - 1)) * WIDTH
  const y = (value: number) => HEIGHT * (1 - share(value))
  for (const [i, line] of lines.entries()) {
    const top = tops[i] ?? []
    const floor = arrange === stack ? tops[i - 1] : undefined
    line.stroke.setAttribute('d', strokePath(top, x, y))
    line.area.setAttribute('d', areaPath(top, floor, x, y))
    const value = values[i]?.at(shownSlot === undefined ? -1 : Math.max(0, shownSlot - first))
    setText(line.value, value === null || value === undefined ? '–' : format(value))
  }
  crosshair.setAttribute('visibility', shownSlot === undefined ? 'hidden' : 'visible')
  for (const end of ['x1', 'x2']) crosshair.setAttribute(end, String(((shownSlot ?? 0) / (SLOTS - 1)) * WIDTH))
  setLines(part(figure, 'ticks'), 'li', ticks.map(format))
  for (const [i, tick] of [...part(figure, 'ticks').children].entries()) {
    if (tick instanceof HTMLElement) tick.style.top = `${y(ticks[i] ?? 0)}%`
  }
  setText(part(figure, 'moment'), momentText(history))
  const peak = Math.max(0, ...known(tops))
  figure.classList.toggle('is-empty', peak === 0)
  svg.setAttribute('aria-label', `${title}, at most ${format(peak)}`)
}

function known(values: readonly Values[]): number[] {
  return values.flat().filter((value) => value !== null)
}

function linear(values: readonly Values[]): Arrangement {
  const ceiling = niceCeiling(Math.max(0, ...known(values)))
  return { tops: values, ticks: [ceiling / 2, ceiling], share: (value) => value / ceiling }
}

/** Each line on top of the ones before. */
function stack(values: readonly Values[]): Arrangement {
  const sums = (values[0] ?? []).map(() => 0)
  const tops = values.map((list) =>
    list.map((value, i) => {
      const sum = (sums[i] ?? 0) + (value ?? 0)
      sums[i] = sum
      return sum
    }),
  )
  return { ...linear(tops), tops }
}

/** A logarithmic axis, which shows usual and rare latencies together. */
function decades(values: readonly Values[]): Arrangement {
  const positive = known(values).filter((value) => value > 0)
  const low = Math.floor(Math.log10(Math.min(1000, ...positive)))
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(1, ...positive))))
  const ticks = Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i))
  const share = (value: number) => Math.max(0, Math.log10(value / 10 ** low) / (high - low))
  return { tops: values, ticks, share }
}

function momentText(history: Series): string {
  if (shownSlot === undefined) return 'now'
  return `${duration((SLOTS - 1 - shownSlot) * history.intervalMs)} ago`
}

type Coordinate = (value: number) => number

/** A missing value interrupts the line; a single value becomes a dot. */
function strokePath(values: Values, x: Coordinate, y: Coordinate): string {
  let path = ''
  let isDown = false
  for (const [i, value] of values.entries()) {
    if (value !== null) path += (isDown ? 'L' : 'M') + point(x(i), y(value)) + (isDown ? '' : 'h0')
    isDown = value !== null
  }
  return path
}

function areaPath(top: Values, floor: Values | undefined, x: Coordinate, y: Coordinate): string {
  if (top.length < 2 || top.includes(null)) return ''
  const above = top.map((value, i) => point(x(i), y(value ?? 0)))
  const below = top.map((_, i) => point(x(i), floor === undefined ? HEIGHT : y(floor[i] ?? 0)))
  return `M${[...above, ...below.reverse()].join('L')}Z`
}

function point(x: number, y: number): string {
  return `${x.toFixed(2)} ${y.toFixed(2)}`
}

/** The next round number. */
function niceCeiling(value: number): number {
  if (value <= 0) return 1
  const power = 10 ** Math.floor(Math.log10(value))
  return [1, 2, 3, 4, 6, 8].map((step) => step * power).find((step) => step >= value) ?? 10 * power
}

function svgElement(name: string, attributes: Readonly<Record<string, string | number>>): Element {
  const made = document.createElementNS(SVG_NAMESPACE, name)
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value))
  return made
}
