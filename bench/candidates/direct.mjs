/** No proxy: the load calls the origin. This is the cost of load and origin alone. */

/** @type {import('./candidate.mjs').Candidate} */
export const direct = {
  name: 'direct',
  title: 'direct',
  missing: () => undefined,
  tunnelsWebSockets: true,
  program: undefined,
}
