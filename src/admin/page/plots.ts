/** Script of the status page, second part: the plots. They are plain SVG in a box that is stretched to its place; text stands beside it, so that it is not. */

export const PLOTS_SCRIPT = `
const SVG_NAMESPACE = 'http://www.w3.org/2000/svg'
const SLOTS = 150
const WIDTH = 300
const HEIGHT = 100

/** All plots show one moment together: a place among the slots, or undefined for the latest. */
let shownSlot

const plots = [
  plot('requests', rate, linear, [
    ['Requests', 'blue', (history) => history.requestsPerSecond],
    ['Errors', 'red', (history) => history.errorsPerSecond],
  ]),
  plot('latency', milliseconds, decades, [
    ['99 % below', 'violet', (history) => history.p99Ms],
    ['Half below', 'blue', (history) => history.p50Ms],
  ]),
  plot('lookups', rate, stack, [
    ['At hand', 'green', (history) => history.lookups.ready],
    ['Waited for', 'blue', (history) => history.lookups.waited],
    ['Past estimate', 'amber', (history) => history.lookups.stale],
    ['Replaced', 'red', (history) => history.lookups.replayed],
  ]),
]

function plot(id, format, arrange, lines) {
  const figure = byId(id)
  const svg = figure.querySelector('svg')
  const frame = svg.parentElement
  figure.classList.toggle('is-stacked', arrange === stack)
  const crosshair = svgElement('line', { class: 'crosshair', y1: 0, y2: HEIGHT })
  const drawn = lines.map(([name, colour, valuesOf]) => {
    const key = figure.querySelector('.legend').appendChild(element('li', 'key ' + colour))
    const value = element('span', 'value')
    key.append(element('span', 'name', name), value)
    const area = svgElement('path', { class: 'area ' + colour })
    return { valuesOf, value, area, stroke: svgElement('path', { class: 'stroke ' + colour }) }
  })
  svg.append(...drawn.map((line) => line.area), ...drawn.map((line) => line.stroke), crosshair)
  frame.addEventListener('pointermove', (event) => {
    const box = frame.getBoundingClientRect()
    showMoment(Math.round(((event.clientX - box.left) / box.width) * (SLOTS - 1)))
  })
  frame.addEventListener('pointerleave', () => showMoment(undefined))
  return { figure, svg, crosshair, lines: drawn, format, arrange }
}

function showMoment(slot) {
  shownSlot = slot
  drawPlots()
}

let shownHistory

function drawPlots(history = shownHistory) {
  if (history === undefined) return
  shownHistory = history
  for (const each of plots) drawPlot(each, history)
}

function drawPlot({ figure, svg, crosshair, lines, format, arrange }, history) {
  const values = lines.map((line) => line.valuesOf(history))
  const first = SLOTS - values[0].length
  const { tops, ticks, share } = arrange(values)
  const x = (i) => ((first + i) / (SLOTS - 1)) * WIDTH
  const y = (value) => HEIGHT * (1 - share(value))
  for (const [i, line] of lines.entries()) {
    const floor = arrange === stack && i > 0 ? tops[i - 1].map(y) : undefined
    line.stroke.setAttribute('d', strokePath(tops[i], x, y))
    line.area.setAttribute('d', areaPath(tops[i], floor, x, y))
    const value = values[i].at(shownSlot === undefined ? -1 : Math.max(0, shownSlot - first))
    setText(line.value, value === null || value === undefined ? '–' : format(value))
  }
  crosshair.setAttribute('visibility', shownSlot === undefined ? 'hidden' : 'visible')
  for (const end of ['x1', 'x2']) crosshair.setAttribute(end, ((shownSlot ?? 0) / (SLOTS - 1)) * WIDTH)
  texts(part(figure, 'ticks'), 'li', ticks.map(format))
  for (const [i, tick] of ticks.entries()) part(figure, 'ticks').children[i].style.top = y(tick) + '%'
  setText(part(figure, 'moment'), momentText(history))
  const peak = Math.max(0, ...tops.flat())
  figure.classList.toggle('is-empty', peak === 0)
  svg.setAttribute('aria-label', figure.querySelector('h2').textContent + ', at most ' + format(peak))
}

function linear(values) {
  const ceiling = niceCeiling(Math.max(0, ...values.flat()))
  return { tops: values, ticks: [ceiling / 2, ceiling], share: (value) => value / ceiling }
}

/** Each on top of the ones before it. */
function stack(values) {
  const sums = values[0].map(() => 0)
  const tops = values.map((list) => list.map((value, i) => (sums[i] += value)))
  return { ...linear(tops), tops }
}

/** The same height for every power of ten: what is usual and what is rare are both to be seen. */
function decades(values) {
  const known = values.flat().filter((value) => value > 0)
  const low = Math.floor(Math.log10(Math.min(1000, ...known)))
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(1, ...known))))
  const ticks = Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i))
  const share = (value) => Math.max(0, Math.log10(value / 10 ** low) / (high - low))
  return { tops: values, ticks, share }
}

function momentText(history) {
  if (shownSlot === undefined) return 'last 5 minutes'
  return duration((SLOTS - 1 - shownSlot) * history.intervalMs) + ' ago'
}

function strokePath(values, x, y) {
  let path = ''
  let isDown = false
  values.forEach((value, i) => {
    // A moment without a value breaks the line; a moment alone is a dot.
    if (value !== null) path += (isDown ? 'L' : 'M') + point(x(i), y(value)) + (isDown ? '' : 'h0')
    isDown = value !== null
  })
  return path
}

function areaPath(values, floor, x, y) {
  if (values.length < 2 || values.includes(null)) return ''
  const above = values.map((value, i) => point(x(i), y(value)))
  const below = values.map((_, i) => point(x(i), floor === undefined ? HEIGHT : floor[i]))
  return 'M' + [...above, ...below.reverse()].join('L') + 'Z'
}

function point(x, y) {
  return x.toFixed(2) + ' ' + y.toFixed(2)
}

/** The least round number that is not below. */
function niceCeiling(value) {
  if (value <= 0) return 1
  const power = 10 ** Math.floor(Math.log10(value))
  return [1, 2, 3, 4, 6, 8, 10].map((step) => step * power).find((step) => step >= value)
}

function svgElement(name, attributes) {
  const made = document.createElementNS(SVG_NAMESPACE, name)
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
  return made
}
`
