/** Seeds that have failed, each with the fault that it found. All of them are played in CI. */
export const FOUND: Readonly<Record<number, string>> = {
  17: 'a WebSocket stayed for ever: the end of one side lay behind bytes that the other did not take',
  78: 'a process stood still while a mint was under way, and read its answer first: the standstill used up the time for mints',
  170: 'a request that waited for a connection named the share of its Org, which by then held none',
  183: 'a request waited for its token on a new connection, and was written though the service had closed that meanwhile',
  20879: 'the late rejection of a token that was young when the request was sent cost a mint, and its client got 401',
  40702: 'the late acceptance of an earlier request made an Org fresh, whose token had been rejected',
}

/** Of a minter. */
export const FOUND_WITH_MINTER: Readonly<Record<number, string>> = {
  177: 'a false claim that gave up while its mint went on counted for nothing: two mints in one pause',
}
