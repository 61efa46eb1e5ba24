/** Script of the status page, first part: how numbers, times and foreign text are written. */

export const TEXT_SCRIPT = `
/** Everything that comes from outside goes through textContent: an org id may be spelled like markup. */
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text
}

function byId(id) {
  return document.getElementById(id)
}

function element(name, className, text = '') {
  const made = document.createElement(name)
  made.className = className
  made.textContent = text
  return made
}

const integers = new Intl.NumberFormat('en')
const decimals = new Intl.NumberFormat('en', { maximumSignificantDigits: 2 })

function count(value) {
  return integers.format(value)
}

function decimal(value) {
  return value >= 10 ? integers.format(Math.round(value)) : decimals.format(value)
}

function rate(perSecond) {
  return decimal(perSecond) + '/s'
}

function milliseconds(ms) {
  return ms < 1000 ? decimal(ms) + ' ms' : decimal(ms / 1000) + ' s'
}

/** In the two largest units. */
function duration(ms) {
  const seconds = Math.floor(ms / 1000)
  const units = [
    [Math.floor(seconds / 86400), 'd'],
    [Math.floor(seconds / 3600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'min'],
    [seconds % 60, 's'],
  ]
  const first = units.findIndex(([amount]) => amount > 0)
  if (first === -1) return '0 s'
  const shown = units.slice(first, first + 2).filter(([amount]) => amount > 0)
  return shown.map(([amount, unit]) => amount + ' ' + unit).join(' ')
}

function ago(ms) {
  return ms < 1000 ? 'just now' : duration(ms) + ' ago'
}
`
