/** Certificates of clients that cost a verifier much: long chains of slow keys, and very large ones. Written byte by byte. */

import { generateKeyPairSync, sign } from 'node:crypto'

const DAY_MS = 24 * 3_600_000

/** A chain in PEM, the certificate of the client first, and the key of all of them. */
export interface Chain {
  readonly cert: string
  readonly key: string
}

function der(tag: number, ...contents: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(contents)
  const { length } = content
  if (length < 0x80) return Buffer.concat([Buffer.from([tag, length]), content])
  return Buffer.concat([Buffer.from([tag, 0x83, length >> 16, (length >> 8) & 0xff, length & 0xff]), content])
}

const SEQUENCE = 0x30
const sequence = (...contents: readonly Uint8Array[]) => der(SEQUENCE, ...contents)
const oid = (hex: string) => der(0x06, Buffer.from(hex, 'hex'))
const ECDSA_WITH_SHA512 = sequence(oid('2a8648ce3d040304'))
const nameOf = (text: string) => sequence(der(0x31, sequence(oid('550403'), der(0x0c, Buffer.from(text)))))
const utcTime = (at: number) => der(0x17, Buffer.from(`${new Date(at).toISOString().replace(/\D/g, '').slice(2, 14)}Z`))

const IS_CA = sequence(oid('551d13'), der(0x04, sequence(der(0x01, Buffer.from([0xff])))))

/** Alternative names of this many bytes. */
function manyNames(bytes: number): Buffer {
  const names = Array.from({ length: Math.floor(bytes / 6) }, () => der(0x82, Buffer.from('a.bc')))
  return sequence(oid('551d11'), der(0x04, sequence(...names)))
}

/** Each of the `length` certificates has signed the one before it. P-521 is the slowest curve that clients may use. */
export function longChain(length: number, { namesBytes = 0 } = {}): Chain {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-521' })
  const spki = publicKey.export({ type: 'spki', format: 'der' })
  const now = Date.now()
  const certificates = Array.from({ length }, (_, i) => {
    const extension = i === 0 ? namesBytes > 0 && manyNames(namesBytes) : IS_CA
    const body = sequence(
      der(0xa0, der(0x02, Buffer.from([2]))),
      der(0x02, Buffer.from([1, i])),
      ECDSA_WITH_SHA512,
      nameOf(`${i + 1}`),
      sequence(utcTime(now - DAY_MS), utcTime(now + DAY_MS)),
      nameOf(`${i}`),
      spki,
      ...(extension ? [der(0xa3, sequence(extension))] : []),
    )
    const signature = sign('sha512', body, privateKey)
    const bytes = sequence(body, ECDSA_WITH_SHA512, der(0x03, Buffer.from([0]), signature))
    const text = bytes.toString('base64').replace(/.{64}/g, '$&\n')
    return `-----BEGIN CERTIFICATE-----\n${text}\n-----END CERTIFICATE-----\n`
  })
  return { cert: certificates.join(''), key: String(privateKey.export({ type: 'pkcs8', format: 'pem' })) }
}
