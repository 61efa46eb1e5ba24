/** Parses a Dockerfile into stages and instructions. */

export interface Instruction {
  /** In upper case. */
  readonly name: string
  readonly argument: string
}

/** The first list has the instructions before the first FROM. */
export function parseDockerfile(text: string): readonly (readonly Instruction[])[] {
  const stages: Instruction[][] = [[]]
  for (const line of logicalLines(text)) {
    const [, name = '', argument = ''] = /^(\w+)\s+(.*)$/s.exec(line) ?? []
    const instruction = { name: name.toUpperCase(), argument: argument.trim() }
    if (instruction.name === 'FROM') stages.push([instruction])
    else stages.at(-1)?.push(instruction)
  }
  return stages
}

/** The arguments of one instruction, in order. */
export function argumentsOf(instructions: readonly Instruction[], name: string): string[] {
  return instructions.filter((instruction) => instruction.name === name).map(({ argument }) => argument)
}

function logicalLines(text: string): string[] {
  return text
    .split('\n')
    .filter((line) => !line.startsWith('#'))
    .join('\n')
    .replaceAll(/\\\n\s*/g, '')
    .split('\n')
    .filter((line) => line.trim() !== '')
}
