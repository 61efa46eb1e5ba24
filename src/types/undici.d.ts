// A file of undici that has no types of its own. The index exports the same class, with types.

declare module 'undici/lib/dispatcher/pool.js' {
  import { Pool } from 'undici'
  export default Pool
}
