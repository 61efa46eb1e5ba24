/** The plots of the last five minutes: SVG stretched to its box, with the text in HTML beside it, which must not stretch. */

import type { Series } from '../history.ts'
import { byId, part, setItems, setLines, setText, setTexts } from './dom.ts'
import { ago, milliseconds, rate } from './words.ts'

const SLOTS = 150
const SLOT_MS = 2_000
const WIDTH = 300
const HEIGHT = 100

type Values = readonly (number | null)[]
type Line = readonly [name: string, colour: string, valuesOf: (history: Series) => Values]

interface Plot {
  readonly title: string
  readonly format: (value: number) => string
  readonly lines: readonly Line[]
}

const REQUESTS: readonly Line[] = [
  ['requests', 'blue', (history) => history.requestsPerSecond],
  ['errors of proxy and service', 'red', (history) => history.errorsPerSecond],
]
const LATENCY: readonly Line[] = [
  ['p99', 'amber', (history) => history.p99Ms],
  ['p50', 'blue', (history) => history.p50Ms],
]
const PLOTS: readonly Plot[] = [
  { title: 'Requests per second', format: rate, lines: REQUESTS },
  { title: 'Latency of requests', format: milliseconds, lines: LATENCY },
]

/** What is drawn, and the share of its width at which the pointer stands. */
let drawn: Series | undefined
let pointedAt: number | undefined

/** The legends have the latest values, or those under the pointer. */
export function drawPlots(history: Series): void {
  drawn = history
  const draw = (figure: HTMLElement, plot: Plot) => drawPlot(figure, plot, history)
  setItems(byId('plots'), 'plot', PLOTS, ({ title }) => title, draw)
}

function pointAt(share: number | undefined): void {
  pointedAt = share
  if (drawn !== undefined) drawPlots(drawn)
}

byId('plots').addEventListener('pointermove', ({ target, clientX }) => {
  const frame = (target as Element).closest('.frame')?.getBoundingClientRect()
  pointAt(frame === undefined ? undefined : (clientX - frame.left) / frame.width)
})
byId('plots').addEventListener('pointerleave', () => pointAt(undefined))

function drawPlot(figure: HTMLElement, { title, format, lines }: Plot, history: Series): void {
  const values = lines.map(([, , valuesOf]) => valuesOf(history))
  const highest = roundUp(Math.max(0, ...values.flat().map(Number)))
  const ticks = [highest / 2, highest]
  const first = SLOTS - history.p50Ms.length
  const x = (i: number) => ((first + i) / (SLOTS - 1)) * WIDTH
  const y = (value: number) => HEIGHT * (1 - value / highest)
  const paths = figure.querySelectorAll('path')
  const slot = pointedAt === undefined ? undefined : Math.round(pointedAt * (SLOTS - 1))
  const drawLine = (key: HTMLElement, [name, colour]: Line, i: number) => {
    const value = values[i]?.at(slot === undefined ? -1 : slot - SLOTS) ?? null
    setTexts(key, { '.name': name, '.value': value === null ? '–' : format(value) })
    key.dataset.colour = colour
    paths[i]?.setAttribute('data-colour', colour)
    paths[i]?.setAttribute('d', pathOf(values[i] ?? [], x, y))
  }
  setItems(part(figure, '.legend'), 'key', lines, ([name]) => name, drawLine)
  setLines(part(figure, '.ticks'), ticks.map(format))
  for (const [i, tick] of figure.querySelectorAll<HTMLElement>('.ticks > *').entries()) {
    tick.style.top = `${y(ticks[i] ?? 0)}%`
  }
  setText(part(figure, 'h2'), title)
  const pointer = part(figure, '.pointer')
  pointer.hidden = slot === undefined
  pointer.style.left = `${(100 * (slot ?? 0)) / (SLOTS - 1)}%`
  setText(part(figure, '.at'), slot === undefined ? '' : ago((SLOTS - 1 - slot) * SLOT_MS))
}

function roundUp(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value || 1))
  return power * ([1, 2, 3, 4, 6, 8].find((step) => step * power >= value) ?? 10)
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
