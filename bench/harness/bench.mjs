/** The tools that every scenario gets. */

import { direct } from '../candidates/direct.mjs'
import { goReverseProxy } from '../candidates/go.mjs'
import { haproxy } from '../candidates/haproxy.mjs'
import { httpProxy, httpxy } from '../candidates/http-proxy.mjs'
import { nginx } from '../candidates/nginx.mjs'
import {
  atRevision,
  onNode,
  orgAccessProxy,
  orgAccessProxyRefreshing,
  orgAccessProxyTls,
  orgAccessProxyUnlogged,
} from '../candidates/org-access-proxy.mjs'
import { replyFrom } from '../candidates/reply-from.mjs'
import { splice, spliceParsed } from '../candidates/splice.mjs'

/**
 * @typedef {object} Bench
 * @property {import('./options.mjs').Options} options
 * @property {string} folder For everything that is written on the way; it is deleted at the end.
 * @property {import('../origins/nginx-origin.mjs').Origin} origin
 * @property {readonly import('../candidates/candidate.mjs').Candidate[]} candidates Those that can run here.
 * @property {(text: string) => void} say Prints the progress.
 */

/** @typedef {Readonly<Record<string, string>>} Skipped The reason, by the name of what was skipped. */

const PEERS = [direct, splice, spliceParsed, nginx, haproxy, goReverseProxy, httpProxy, httpxy, replyFrom]
const OURS = [orgAccessProxy, orgAccessProxyUnlogged]

/** Titles by name. */
export const TITLES = Object.fromEntries(
  [...PEERS, ...OURS, orgAccessProxyRefreshing, orgAccessProxyTls].map(({ name, title }) => [name, title]),
)

/**
 * @param {import('./options.mjs').Options} options
 * @returns {{ candidates: import('../candidates/candidate.mjs').Candidate[], skipped: Skipped }}
 */
export function chooseCandidates({ peers: wanted, nodes, besides }) {
  const unknown = wanted.find((name) => !PEERS.some((peer) => peer.name === name))
  if (unknown !== undefined) {
    throw new TypeError(`there is no peer ${unknown}, but ${PEERS.map(({ name }) => name).join(', ')}`)
  }
  /** @type {Record<string, string>} */
  const skipped = nodes.length === 0 ? { 'this program on another Node': 'no --node PATH' } : {}
  const present = [...PEERS, ...OURS].filter((candidate) => {
    const isWanted = wanted.length === 0 || OURS.includes(candidate) || wanted.includes(candidate.name)
    const reason = isWanted ? candidate.missing() : 'not asked for'
    if (reason !== undefined) skipped[candidate.name] = reason
    return reason === undefined
  })
  return { candidates: [...present, ...nodes.map(onNode), ...besides.map(atRevision)], skipped }
}
