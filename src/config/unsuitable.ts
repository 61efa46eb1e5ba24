/** Thrown by what parses a setting's text: the message says what would be right, and never repeats what may be a secret. */
export class Unsuitable extends Error {
  override readonly name = 'Unsuitable'
}
