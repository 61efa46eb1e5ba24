// The modules behind undici's index, typed by what the index says of them.

declare module 'undici/lib/dispatcher/pool.js' {
  import { Pool } from 'undici'
  export default Pool
}
