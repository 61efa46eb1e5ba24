/** Script of the status page, second part: the plots. They are plain SVG in a box that is stretched to its place; text stands beside it, so that it is not. */

export const PLOTS_SCRIPT = `
const SVG_NAMESPACE = 'http://www.w3.org/2000/svg'
const SLOTS = 150
const WIDTH = 300
const HEIGHT = 100

/** All plots show one moment together: a place among the slots, or undefined for the latest. */
let shownSlot

const plots = [
  plot('requests', rate, false, [
    ['all', 'Requests', 'blue', (history) => history.requestsPerSecond],
    ['errors', 'Errors', 'red', (history) => history.errorsPerSecond],
  ]),
  plot('latency', milliseconds, false, [
    ['p99', 'p99', 'violet', (history) => history.p99Ms],
    ['p50', 'p50', 'blue', (history) => history.p50Ms],
  ]),
  plot('lookups', rate, true, [
    ['ready', 'At hand', 'green', (history) => history.lookups.ready],
    ['waited', 'Waited for', 'blue', (history) => history.lookups.waited],
    ['stale', 'Past its estimate', 'amber', (history) => history.lookups.stale],
    ['replayed', 'Replaced after a rejection', 'red', (history) => history.lookups.replayed],
  ]),
]

function plot(id, format, isStacked, lines) {
  const figure = byId(id)
  const svg = figure.querySelector('svg')
  const legend = figure.querySelector('ul')
  const crosshair = svgElement('line', { class: 'crosshair', y1: 0, y2: HEIGHT })
  const grid = [0.5, 1].map((share) => {
    const y = HEIGHT * (1 - share)
    return svgElement('line', { class: 'grid', x1: 0, x2: WIDTH, y1: y, y2: y })
  })
  const drawn = lines.map(([key, name, colour, valuesOf]) => {
    const item = legend.appendChild(element('li', 'key ' + colour))
    item.append(element('span', 'name', name), element('span', 'value', '–'))
    return {
      key,
      valuesOf,
      area: svgElement('path', { class: 'area ' + colour }),
      stroke: svgElement('path', { class: 'stroke ' + colour }),
      value: item.lastChild,
    }
  })
  svg.append(...grid, ...drawn.map((line) => line.area), ...drawn.map((line) => line.stroke), crosshair)
  const frame = svg.parentElement
  frame.addEventListener('pointermove', (event) => {
    const box = frame.getBoundingClientRect()
    shownSlot = Math.round(((event.clientX - box.left) / box.width) * (SLOTS - 1))
    drawPlots()
  })
  frame.addEventListener('pointerleave', () => {
    shownSlot = undefined
    drawPlots()
  })
  return { figure, svg, crosshair, lines: drawn, format, isStacked }
}

let shownHistory

function drawPlots(history = shownHistory) {
  if (history === undefined) return
  shownHistory = history
  for (const each of plots) drawPlot(each, history)
}

function drawPlot({ figure, svg, crosshair, lines, format, isStacked }, history) {
  const values = lines.map((line) => line.valuesOf(history))
  const tops = isStacked ? stacked(values) : values
  const peak = Math.max(0, ...tops.flat())
  const ceiling = niceCeiling(peak)
  const first = SLOTS - values[0].length
  const x = (index) => ((first + index) / (SLOTS - 1)) * WIDTH
  const y = (value) => HEIGHT * (1 - value / ceiling)
  lines.forEach((line, i) => {
    const floor = isStacked && i > 0 ? tops[i - 1] : undefined
    line.stroke.setAttribute('d', strokePath(tops[i], x, y))
    line.area.setAttribute('d', areaPath(tops[i], floor, x, y))
    const index = shownSlot === undefined ? values[i].length - 1 : shownSlot - first
    setText(line.value, values[i][index] == null ? '–' : format(values[i][index]))
  })
  const place = shownSlot === undefined ? -1 : (shownSlot / (SLOTS - 1)) * WIDTH
  crosshair.setAttribute('x1', place)
  crosshair.setAttribute('x2', place)
  setText(figure.querySelector('.top'), format(ceiling))
  setText(figure.querySelector('.middle'), format(ceiling / 2))
  setText(figure.querySelector('.moment'), momentText(history))
  figure.classList.toggle('is-empty', peak === 0)
  svg.setAttribute('aria-label', figure.querySelector('h2').textContent + ', at most ' + format(peak))
}

function momentText(history) {
  if (shownSlot === undefined) return 'last 5 minutes'
  return duration((SLOTS - 1 - shownSlot) * history.intervalMs) + ' ago'
}

/** Each list on top of the ones before it. */
function stacked(lists) {
  const sums = lists[0].map(() => 0)
  return lists.map((list) => list.map((value, i) => (sums[i] += value)))
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
  const below = values.map((_, i) => point(x(i), y(floor === undefined ? 0 : floor[i])))
  return 'M' + [...above, ...below.reverse()].join('L') + 'Z'
}

function point(x, y) {
  return x.toFixed(2) + ' ' + y.toFixed(2)
}

/** The least of 1, 2, 5, 10, 20, … that is not below. */
function niceCeiling(value) {
  if (value <= 0) return 1
  const power = 10 ** Math.floor(Math.log10(value))
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value)
}

function svgElement(name, attributes) {
  const made = document.createElementNS(SVG_NAMESPACE, name)
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
  return made
}
`
