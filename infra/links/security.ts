import type { Config } from '../config.ts';
import { readCertificate } from './certificate.ts';
import { readPeers } from './peers.ts';

/** Interval at which a process reads the accepted certificates, in milliseconds: a removed machine keeps its connections at most that long. */
const READ_EVERY_MS = 200;
/** A line is logged at most once in this time, in milliseconds: an outsider must not fill the disk. */
const SAY_AGAIN_MS = 60_000;
/** Maximum lines remembered; one more makes the process forget them all. */
const MAX_LINES = 1000;

/**
 * This machine's part in links to others: its certificate, and the certificates of registered machines, which the supervisor keeps in a file.
 * Undefined when the machine has no certificate, because no supervisor started it.
 */
export function openLinkSecurity(config: Pick<Config, 'home' | 'runDirectory'>) {
  const credentials = readCertificate(config.home);
  if (!credentials) return undefined;
  const listeners = new Set<() => void>();
  const saidMsByLine = new Map<string, number>();
  const say = (line: string): void => {
    const nowMs = performance.now();
    if (nowMs - (saidMsByLine.get(line) ?? Number.NEGATIVE_INFINITY) < SAY_AGAIN_MS) return;
    if (saidMsByLine.size >= MAX_LINES) saidMsByLine.clear();
    saidMsByLine.set(line, nowMs);
    console.error(line);
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
      say(`The list of machines cannot be read; the last one counts: ${error}`);
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
    refused: (why: string): void => say(`Refused a link: ${why}.`),
  };
}
