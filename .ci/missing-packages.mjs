/** Prints the Debian packages of the programs that some tests run and that are not installed. */

import { accessSync, constants, readFileSync } from 'node:fs'

const programs = JSON.parse(readFileSync(new URL('../test/support/programs.json', import.meta.url), 'utf8'))
const folders = [...process.env.PATH.split(':'), '/usr/sbin', '/sbin']

function isInstalled(name) {
  return folders.some((folder) => {
    try {
      accessSync(`${folder}/${name}`, constants.X_OK)
      return true
    } catch {
      return false
    }
  })
}

const missing = Object.entries(programs).filter(([name, debian]) => debian !== null && !isInstalled(name))
console.log([...new Set(missing.map(([, debian]) => debian))].join(' '))
