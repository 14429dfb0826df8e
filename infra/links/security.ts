import type { Config } from '../config.ts';
import type { Logger } from '../log.ts';
import { readCertificate } from './certificate.ts';
import { readPeers } from './peers.ts';

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
