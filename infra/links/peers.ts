import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Config } from '../config.ts';

const fileOf = ({ runDirectory }: Pick<Config, 'runDirectory'>): string => path.join(runDirectory, 'peers.json');

/** Fingerprints of the certificates of all registered machines, as the supervisor read them last. Empty without a file. */
export function readPeers(config: Pick<Config, 'runDirectory'>): string[] {
  try {
    return JSON.parse(readFileSync(fileOf(config), 'utf8')) as string[];
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

/** Replaces the fingerprints for the processes of this machine. */
export function writePeers(config: Pick<Config, 'runDirectory'>, fingerprints: readonly string[]): void {
  const file = fileOf(config);
  writeFileSync(`${file}.new`, JSON.stringify(fingerprints), { mode: 0o600 });
  renameSync(`${file}.new`, file);
}

/** The accepted fingerprints over time. Pure: the caller passes what the registry says and the time. */
export class PeerList {
  readonly #seenMs = new Map<string, number>();
  readonly #keptMs: number;

  /** @param keptMs for how long the registry must lack a certificate before it is refused: Redis may restart empty, and be filled by renewals */
  constructor(keptMs: number) {
    this.#keptMs = keptMs;
  }

  /**
   * Takes the registered fingerprints, and returns the accepted ones in order.
   * @param nowMs time of a monotonic clock
   */
  update(registered: Iterable<string>, nowMs: number): string[] {
    for (const each of registered) this.#seenMs.set(each, nowMs);
    for (const [each, seenMs] of this.#seenMs) if (nowMs - seenMs >= this.#keptMs) this.#seenMs.delete(each);
    return [...this.#seenMs.keys()].sort();
  }
}
