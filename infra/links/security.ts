import { webcrypto, X509Certificate } from 'node:crypto';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Config } from '../config.ts';
import type { Logger } from '../log.ts';

/** Interval at which a process reads the accepted certificates, in milliseconds: a removed machine keeps its connections at most that long. */
const READ_EVERY_MS = 200;
/** Shortest time between two equal records, in milliseconds: an outsider must not fill the disk. */
const LOG_AGAIN_MS = 60_000;
/** Maximum number of remembered records. Before it remembers one more, the process forgets all of them. */
const MAX_RECORDS = 1000;

/**
 * This machine's part in links to others: its certificate, and the certificates of registered machines, which the supervisor keeps in a file.
 * Undefined when the home has no certificate: a supervisor or `pie join` makes it.
 */
export function openLinkSecurity(config: Pick<Config, 'home' | 'runDirectory'>, log: Logger) {
  const credentials = readCertificate(config.home);
  if (!credentials) return undefined;
  const listeners = new Set<() => void>();
  const loggedMs = new Map<string, number>();
  const warn = (fields: { readonly error?: unknown; readonly why?: string }, message: string): void => {
    const nowMs = performance.now();
    const record = `${message} ${fields.why ?? fields.error}`;
    if (nowMs - (loggedMs.get(record) ?? Number.NEGATIVE_INFINITY) < LOG_AGAIN_MS) return;
    if (loggedMs.size >= MAX_RECORDS) loggedMs.clear();
    loggedMs.set(record, nowMs);
    log.warn(fields, message);
  };
  let peers = readPeers(config);
  const read = () => {
    const newPeers = readPeers(config);
    if (JSON.stringify(newPeers) === JSON.stringify(peers)) return;
    peers = newPeers;
    for (const listener of [...listeners]) listener();
  };
  setInterval(() => {
    try {
      read();
    } catch (error) {
      warn({ error }, 'the list of machines cannot be read; the last one counts');
    }
  }, READ_EVERY_MS).unref();
  return {
    key: credentials.key,
    certificate: credentials.certificate,
    machineOf: (fingerprint: string): string | undefined => peers[fingerprint],
    onChange: (listener: () => void) => {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    refused: (why: string): void => warn({ why }, 'refused a link'),
  };
}

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

const peersFile = ({ runDirectory }: Pick<Config, 'runDirectory'>): string => path.join(runDirectory, 'peers.json');

/** Names of machines by the fingerprints of their certificates. */
export type Peers = Readonly<Record<string, string>>;

/** The machines whose certificates are accepted, as the supervisor wrote them last; none without a file. */
export function readPeers(config: Pick<Config, 'runDirectory'>): Peers {
  try {
    return JSON.parse(readFileSync(peersFile(config), 'utf8')) as Peers;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return {};
    throw error;
  }
}

/** Replaces the list of machines that the processes of this machine read. */
export function writePeers(config: Pick<Config, 'runDirectory'>, peers: Peers): void {
  const file = peersFile(config);
  writeFileSync(`${file}.new`, JSON.stringify(peers), { mode: 0o600 });
  renameSync(`${file}.new`, file);
}

/** Decides which certificates are accepted. Pure: the caller passes the registry's entries and the time. */
export class PeerList {
  readonly #lastSeen = new Map<string, { readonly machine: string; readonly seenMs: number }>();
  readonly #keptMs: number;
  readonly #readEveryMs: number;
  #lastReadMs = Number.NEGATIVE_INFINITY;
  /** Time up to the last read, as far as it counts towards `keptMs`. */
  #countedMs = 0;

  /**
   * @param keptMs time for which the registry must lack a certificate before it is refused: after Redis restarts empty, renewals fill the registry
   * @param readEveryMs longest time between two reads; a longer one counts as this long, because no machine can renew its entry without Redis
   */
  constructor(keptMs: number, readEveryMs: number) {
    this.#keptMs = keptMs;
    this.#readEveryMs = readEveryMs;
  }

  /**
   * Takes the registered machines by fingerprint, and returns the accepted ones in the order of the fingerprints.
   * @param removed fingerprints that an operator has removed: they are refused at once
   * @param nowMs time of a monotonic clock
   */
  update(registered: Iterable<readonly [string, string]>, removed: Iterable<string>, nowMs: number): Peers {
    this.#countedMs += Math.min(nowMs - this.#lastReadMs, this.#readEveryMs);
    this.#lastReadMs = nowMs;
    const seenMs = this.#countedMs;
    for (const [fingerprint, machine] of registered) this.#lastSeen.set(fingerprint, { machine, seenMs });
    for (const [fingerprint, lastSeen] of this.#lastSeen)
      if (seenMs - lastSeen.seenMs >= this.#keptMs) this.#lastSeen.delete(fingerprint);
    for (const fingerprint of removed) this.#lastSeen.delete(fingerprint);
    return Object.fromEntries(
      [...this.#lastSeen].map(([fingerprint, { machine }]) => [fingerprint, machine] as const).sort(),
    );
  }
}
