/**
 * `orgs.pattern`, the shape of an org id, and a trial that finds patterns which backtrack. `^(a+)+$` takes twice as long for
 * every further letter, and a request can name any org id. With such a pattern, one request would stop the process.
 *
 * The trial derives strings from the pattern itself. For each repetition in it, a string leads to the repetition, repeats the
 * repeated part many times, and ends with a character that does not match. This finds the usual mistakes, but proves nothing.
 */

import { Worker } from 'node:worker_threads'
import { MAX_ORG_ID_LENGTH } from '../http/org-id.ts'
import { Unsuitable } from './problem.ts'

/** Matches an org id. */
export const DEFAULT_PATTERN = '^[\\w-][\\w.~:@+=-]{0,127}$'

/** Anchored at both ends, because a part of an id is not an id. */
export function parseOrgPattern(text: string): RegExp {
  try {
    // Compiled alone first: the group below would make `a)|(b` valid.
    return new RegExp(`^(?:${new RegExp(text).source})$`)
  } catch {
    throw new Unsuitable(`is not a regular expression: the default is ${DEFAULT_PATTERN}`)
  }
}

const DEFAULT = parseOrgPattern(DEFAULT_PATTERN)

/** @throws {Unsuitable} if a request could keep the pattern busy for seconds. */
export async function tryOrgPattern(pattern: RegExp): Promise<void> {
  // The trial starts a thread, which the default does not need.
  if (pattern.source === DEFAULT.source || (await matchesInTime(pattern))) return
  throw new Unsuitable(
    'takes too long to refuse some ids: one part can match the same text in several ways, as in (a+)+ or a*a*a*',
  )
}

/** For all strings together. A pattern without the problem takes about a millisecond. */
const TIME_LIMIT_MS = 2_000

/** Longer than any id, so that a pattern of cubic cost exceeds the limit even on a fast machine, and a linear one never. */
const TRIAL_LENGTH = 4 * MAX_ORG_ID_LENGTH

const MAX_STRINGS = 400
const MAX_SAMPLES = 8

/** Resolves with false if a string of an id's alphabet takes too long. Matches in a thread, which can be stopped. */
export async function matchesInTime(pattern: RegExp, timeLimitMs = TIME_LIMIT_MS): Promise<boolean> {
  const strings = slowStrings(pattern.source)
  if (strings.length === 0) return true
  const worker = new Worker(TRIAL, { eval: true, workerData: { source: pattern.source, strings }, env: {} })
  let timer: NodeJS.Timeout | undefined
  try {
    return await new Promise<boolean>((resolve, reject) => {
      worker.once('message', () => resolve(true))
      worker.once('error', reject)
      worker.once('online', () => {
        timer = setTimeout(() => resolve(false), timeLimitMs)
      })
    })
  } finally {
    clearTimeout(timer)
    await worker.terminate()
  }
}

const TRIAL = `
const { parentPort, workerData } = require('node:worker_threads')
const pattern = new RegExp(workerData.source)
for (const text of workerData.strings) pattern.test(text)
parentPort.postMessage('done')`

function slowStrings(source: string): string[] {
  const alphabet = new Alphabet(source)
  const { attacks } = new PatternReader(source, alphabet).read()
  const strings = new Set<string>()
  for (const { prefix, pump } of attacks) {
    const repeated = pump.repeat(timesToFill(pump))
    for (const last of alphabet.endings) strings.add(prefix + repeated + last)
  }
  return [...strings].slice(0, MAX_STRINGS)
}

/** One part of a pattern: some strings that it matches, and the repetitions in it. */
interface Part {
  readonly samples: readonly string[]
  readonly attacks: readonly Attack[]
}

interface Attack {
  /** Leads to the repetition. */
  readonly prefix: string
  /** The repeated part; never empty. */
  readonly pump: string
}

/** An escape, which may have several characters, a class, or one character. */
const ATOM = /\\(?:x[\dA-Fa-f]{2}|u[\dA-Fa-f]{4}|c[A-Za-z]|[\s\S])|\[(?:\\[\s\S]|[^\]\\])*\]|[\s\S]/
const ATOMS = new RegExp(ATOM, 'g')
const NEXT_ATOM = new RegExp(ATOM, 'y')

/** One character for each group of characters that every part of the pattern treats alike. */
class Alphabet {
  /** The characters that most parts match come first, because parts that overlap make a pattern slow. */
  readonly #characters: readonly string[]
  /** Characters to end a string with: first one that nothing in the pattern matches, if there is one. */
  readonly endings: readonly string[]

  constructor(source: string) {
    const classes = [...new Set(source.match(ATOMS))].flatMap((atom) => compiled(atom) ?? [])
    const groups = new Map<string, { character: string; matches: number }>()
    for (let code = 0x21; code < 0x7f; code++) {
      const character = String.fromCharCode(code)
      const found = classes.map((atom) => (atom.test(character) ? 1 : 0))
      const matches = found.reduce<number>((sum, bit) => sum + bit, 0)
      const signature = found.join('')
      if (!groups.has(signature)) groups.set(signature, { character, matches })
    }
    const sorted = [...groups.values()].sort((a, b) => b.matches - a.matches).map(({ character }) => character)
    this.#characters = sorted
    this.endings = sorted.toReversed().slice(0, 4)
  }

  matchedBy(atom: string): string[] {
    const pattern = compiled(atom)
    if (pattern === undefined) return ['']
    return this.#characters.filter((character) => pattern.test(character)).slice(0, MAX_SAMPLES)
  }
}

function compiled(atom: string): RegExp | undefined {
  if (/^[()|*+?{}^$]$/.test(atom) || /^\\[bB1-9k]$/.test(atom)) return undefined
  try {
    return new RegExp(`^(?:${atom})$`)
  } catch {
    return undefined
  }
}

/** Reads a pattern that has been compiled before, so its syntax is right. */
class PatternReader {
  readonly #source: string
  readonly #alphabet: Alphabet
  #at = 0

  constructor(source: string, alphabet: Alphabet) {
    this.#source = source
    this.#alphabet = alphabet
  }

  read(): Part {
    return this.#alternatives()
  }

  #alternatives(): Part {
    const parts = [this.#sequence()]
    while (this.#take(/\|/y) !== undefined) parts.push(this.#sequence())
    return {
      samples: unique(parts.flatMap(({ samples }) => samples)),
      attacks: parts.flatMap(({ attacks }) => attacks),
    }
  }

  #sequence(): Part {
    let samples: readonly string[] = ['']
    const attacks: Attack[] = []
    while (this.#at < this.#source.length && !/[|)]/.test(this.#source[this.#at] ?? '')) {
      const part = this.#repeated(this.#atom())
      for (const { prefix, pump } of part.attacks) attacks.push({ prefix: `${samples[0] ?? ''}${prefix}`, pump })
      samples = unique(samples.flatMap((before) => part.samples.map((after) => before + after)))
    }
    return { samples, attacks }
  }

  #atom(): Part {
    const group = this.#take(/\((?:\?(?:[=!:]|<[=!]|<[^>]*>))?/y)
    if (group !== undefined) {
      const inner = this.#alternatives()
      this.#take(/\)/y)
      // A look-around consumes nothing.
      return /^\(\?<?[=!]$/.test(group) ? { samples: [''], attacks: inner.attacks } : inner
    }
    if (this.#take(/[\^$]|\\[bB]/y) !== undefined) return { samples: [''], attacks: [] }
    const atom = this.#take(NEXT_ATOM) ?? ''
    return { samples: this.#alphabet.matchedBy(atom), attacks: [] }
  }

  #repeated(part: Part): Part {
    const quantifier = this.#take(/(?:[*+?]|\{\d+(?:,\d*)?\})\??/y)
    if (quantifier === undefined) return part
    const [, least = '0'] = /^\{(\d+)/.exec(quantifier) ?? []
    const isOptional = quantifier.startsWith('*') || quantifier.startsWith('?') || least === '0'
    const times = Math.max(1, Number(least))
    const repeated = part.samples.map((sample) => sample.repeat(Math.min(times, timesToFill(sample))))
    const pumps = part.samples.filter((sample) => sample !== '')
    return {
      samples: unique(isOptional ? [...repeated, ''] : repeated),
      attacks: [...part.attacks, ...pumps.map((pump) => ({ prefix: '', pump }))],
    }
  }

  #take(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at
    const match = pattern.exec(this.#source)
    if (match === null) return undefined
    this.#at = pattern.lastIndex
    return match[0]
  }
}

function timesToFill(text: string): number {
  return Math.ceil(TRIAL_LENGTH / Math.max(1, text.length))
}

function unique(samples: readonly string[]): string[] {
  return [...new Set(samples)].slice(0, MAX_SAMPLES)
}
