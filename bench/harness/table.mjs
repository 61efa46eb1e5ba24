/** Markdown tables with aligned columns, so that they are readable as plain text. */

/**
 * @param {readonly string[]} titles
 * @param {readonly (readonly string[])[]} rows
 */
export function markdownTable(titles, rows) {
  const widths = titles.map((title, column) => Math.max(title.length, ...rows.map((row) => row[column]?.length ?? 0)))
  const line = (/** @type {readonly string[]} */ cells) =>
    `| ${widths.map((width, column) => padded(cells[column] ?? '', width, column)).join(' | ')} |`
  const rule = widths.map((width, column) => (column === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`))
  return [line(titles), line(rule), ...rows.map(line)].join('\n')
}

/**
 * The first column holds names, the others numbers.
 * @param {string} cell
 * @param {number} width
 * @param {number} column
 */
function padded(cell, width, column) {
  return column === 0 ? cell.padEnd(width) : cell.padStart(width)
}

/**
 * @param {number} value
 * @param {number} digits
 */
export function shown(value, digits) {
  if (Number.isNaN(value)) return '–'
  return value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits })
}
