import { webcrypto, X509Certificate } from 'node:crypto';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const DAY_MS = 86_400_000;
const VALID_DAYS = 365;
/** A start replaces a certificate that is valid for fewer days than this. */
const RENEW_DAYS = 30;
const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };

/** A machine's certificate, which its links to other machines show, with its key. */
export interface MachineCertificate {
  /** Private key, PEM. */
  readonly key: string;
  /** Self-signed certificate, PEM. */
  readonly certificate: string;
  /** SHA-256 of the certificate: `AB:CD:…`. */
  readonly fingerprint: string;
}

/** File with the key and the certificate, in the machine's home; its owner alone may read it. */
const fileOf = (home: string): string => path.join(home, 'machine.pem');

/**
 * Returns the machine's certificate. Makes a new one when the home has none, or has one that is valid for less than 30 days after `nowMs`.
 * @param nowMs milliseconds since the Unix epoch
 */
export async function ensureCertificate(home: string, machine: string, nowMs: number): Promise<MachineCertificate> {
  const storedCertificate = readCertificate(home);
  if (
    storedCertificate &&
    new X509Certificate(storedCertificate.certificate).validToDate.getTime() - nowMs >= RENEW_DAYS * DAY_MS
  )
    return storedCertificate;
  const freshCertificate = await newCertificate(machine, nowMs);
  writeCertificate(home, freshCertificate);
  return freshCertificate;
}

/** Keeps a certificate in the machine's home. */
export function writeCertificate(home: string, { key, certificate }: MachineCertificate): void {
  const file = fileOf(home);
  writeFileSync(`${file}.new`, `${key}${certificate}`, { mode: 0o600 });
  renameSync(`${file}.new`, file);
}

/** The machine's certificate; null when the home has none. */
export function readCertificate(home: string): MachineCertificate | null {
  let text: string;
  try {
    text = readFileSync(fileOf(home), 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
  const at = text.indexOf('-----BEGIN CERTIFICATE-----');
  return ofPem(text.slice(0, at), text.slice(at));
}

function ofPem(key: string, certificate: string): MachineCertificate {
  return { key, certificate, fingerprint: new X509Certificate(certificate).fingerprint256 };
}

/** A new key and certificate. @param nowMs milliseconds since the Unix epoch */
export async function newCertificate(machine: string, nowMs: number): Promise<MachineCertificate> {
  // Only a start without a usable certificate loads the library.
  await import('reflect-metadata');
  const { PemConverter, X509CertificateGenerator } = await import('@peculiar/x509');
  const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
  const certificate = await X509CertificateGenerator.createSelfSigned(
    {
      name: [{ CN: [machine] }],
      notBefore: new Date(nowMs - DAY_MS),
      notAfter: new Date(nowMs + VALID_DAYS * DAY_MS),
      signingAlgorithm: ALGORITHM,
      keys,
    },
    webcrypto as Crypto,
  );
  const key = await webcrypto.subtle.exportKey('pkcs8', keys.privateKey);
  return ofPem(`${PemConverter.encode(key, 'PRIVATE KEY')}\n`, `${certificate.toString('pem')}\n`);
}
