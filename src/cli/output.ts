/** Where a command writes: a stream of the process, or whatever a test puts in its place. */
export interface Output {
  write(text: string): unknown
}
