/** The plots of the last five minutes: SVG stretched to its box, with the text in HTML beside it, which must not stretch. */

import type { Series } from '../history.ts'
import { byId, duration, milliseconds, part, rate, setItems, setLines, setTexts } from './dom.ts'

const SLOTS = 150
const WIDTH = 300
const HEIGHT = 100

type Values = readonly (number | null)[]
type Line = readonly [name: string, colour: string, valuesOf: (history: Series) => Values]

/** The vertical axis: its labels, and the height of a value, 0 to 1. */
type Scale = readonly [ticks: readonly number[], share: (value: number) => number]

interface Plot {
  readonly title: string
  readonly format: (value: number) => string
  readonly scaleFor: (values: readonly number[]) => Scale
  readonly lines: readonly Line[]
  /** Each line is drawn on top of the ones before, as an area. */
  readonly isStacked?: boolean
}

const REQUESTS: readonly Line[] = [
  ['requests', 'blue', (history) => history.requestsPerSecond],
  ['errors of proxy and service', 'red', (history) => history.errorsPerSecond],
]
const LATENCY: readonly Line[] = [
  ['p99', 'violet', (history) => history.p99Ms],
  ['p50', 'blue', (history) => history.p50Ms],
]
const LOOKUPS: readonly Line[] = [
  ['token at hand', 'green', ({ lookups }) => lookups.ready],
  ['waited for a mint', 'blue', ({ lookups }) => lookups.waited],
  ['old token', 'amber', ({ lookups }) => lookups.stale],
  ['repeated', 'red', ({ lookups }) => lookups.replayed],
]
const PLOTS: readonly Plot[] = [
  { title: 'Requests per second', format: rate, scaleFor: linear, lines: REQUESTS },
  { title: 'Latency of requests', format: milliseconds, scaleFor: decades, lines: LATENCY },
  { title: 'Token lookups per second', format: rate, scaleFor: linear, lines: LOOKUPS, isStacked: true },
]

let shownHistory: Series | undefined
/** All plots show the values of the same slot: the latest, or the one under the pointer. */
let slot = SLOTS - 1

export function drawPlots(history = shownHistory): void {
  if (history === undefined) return
  shownHistory = history
  const draw = (figure: HTMLElement, plot: Plot) => drawPlot(figure, plot, history)
  setItems(byId('plots'), 'plot', PLOTS, ({ title }) => title, draw)
}

function drawPlot(figure: HTMLElement, { title, format, scaleFor, isStacked, lines }: Plot, history: Series): void {
  const values = lines.map(([, , valuesOf]) => valuesOf(history))
  const tops = isStacked ? sumsOf(values) : values
  const [ticks, share] = scaleFor(tops.flat().filter((value) => value !== null))
  const first = SLOTS - history.p50Ms.length
  const x = (i: number) => ((first + i) / (SLOTS - 1)) * WIDTH
  const y = (value: number) => HEIGHT * (1 - share(value))
  // The last path is in front, and the first line of a stack is the lowest.
  const paths = [...figure.querySelectorAll('path')].reverse()
  const drawLine = (key: HTMLElement, [name, colour]: Line, i: number) => {
    const value = values[i]?.[slot - first] ?? null
    setTexts(key, { '.name': name, '.value': value === null ? '–' : format(value) })
    key.dataset.colour = colour
    paths[i]?.setAttribute('data-colour', colour)
    paths[i]?.setAttribute('d', pathOf(tops[i] ?? [], x, y) + (isStacked ? `V${HEIGHT}H${x(0)}Z` : ''))
  }
  figure.classList.toggle('is-stacked', isStacked === true)
  setItems(part(figure, '.legend'), 'key', lines, ([name]) => name, drawLine)
  setLines(part(figure, '.ticks'), ticks.map(format))
  for (const [i, tick] of figure.querySelectorAll<HTMLElement>('.ticks > *').entries()) {
    tick.style.top = `${y(ticks[i] ?? 0)}%`
  }
  const left = SLOTS - 1 - slot
  part(figure, '.crosshair').style.right = `${(left / (SLOTS - 1)) * 100}%`
  part(figure, '.crosshair').hidden = left === 0
  setTexts(figure, { h2: title, '.moment': left === 0 ? 'now' : `${duration(left * history.intervalMs)} ago` })
}

/** Each list with the ones before added. */
function sumsOf(lists: readonly Values[]): number[][] {
  const sum = (i: number, until: number) => lists.slice(0, until).reduce((total, list) => total + (list[i] ?? 0), 0)
  return lists.map((list, n) => list.map((_, i) => sum(i, n + 1)))
}

/** Up to the next round number. */
function linear(values: readonly number[]): Scale {
  const highest = Math.max(0, ...values)
  const power = 10 ** Math.floor(Math.log10(highest || 1))
  const ceiling = power * ([1, 2, 3, 4, 6, 8].find((step) => step * power >= highest) ?? 10)
  return [[ceiling / 2, ceiling], (value) => value / ceiling]
}

/** A logarithmic axis, which shows usual and rare latencies together. */
function decades(values: readonly number[]): Scale {
  const exponents = values.filter((value) => value > 0).map(Math.log10)
  const low = Math.floor(Math.min(3, ...exponents))
  const high = Math.ceil(Math.max(low + 1, ...exponents))
  const ticks = Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i))
  return [ticks, (value) => Math.max(0, (Math.log10(value) - low) / (high - low))]
}

/** A missing value interrupts the line; a single value becomes a dot. */
function pathOf(values: Values, x: (i: number) => number, y: (value: number) => number): string {
  const points = values.map((value, i) => {
    if (value === null) return ''
    const point = `${x(i).toFixed(2)} ${y(value).toFixed(2)}`
    return typeof values[i - 1] === 'number' ? `L${point}` : `M${point}h0`
  })
  return points.join('')
}

function showSlot(shown: number): void {
  slot = Math.min(Math.max(shown, 0), SLOTS - 1)
  drawPlots()
}

byId('plots').addEventListener('pointermove', ({ target, clientX }) => {
  const box = (target as Element).closest('.frame')?.getBoundingClientRect()
  showSlot(box === undefined ? SLOTS : Math.round(((clientX - box.left) / box.width) * (SLOTS - 1)))
})
byId('plots').addEventListener('pointerleave', () => showSlot(SLOTS))
