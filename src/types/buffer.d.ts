/** Part of every Buffer since its beginning, though not of its documentation: `toString` without the look-up of the encoding. */
interface Buffer {
  latin1Slice(start: number, end: number): string
}
