/** Nothing before the origin: what load and origin cost by themselves. */

/** @type {import('./candidate.mjs').Candidate} */
export const direct = {
  name: 'direct',
  title: 'direct',
  missing: () => undefined,
  tunnelsWebSockets: true,
  program: undefined,
}
