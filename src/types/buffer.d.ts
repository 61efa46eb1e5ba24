/** Part of every Buffer since its beginning, though not of its documentation: the same without the look-up of the encoding. */
interface Buffer {
  latin1Slice(start: number, end: number): string
  latin1Write(text: string, offset: number, length: number): number
}
