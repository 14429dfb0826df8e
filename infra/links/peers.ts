import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Config } from '../config.ts';

const fileOf = ({ runDirectory }: Pick<Config, 'runDirectory'>): string => path.join(runDirectory, 'peers.json');

/** Names of machines by the fingerprints of their certificates. */
export type Peers = Readonly<Record<string, string>>;

/** All registered machines, as the supervisor read them last. None without a file. */
export function readPeers(config: Pick<Config, 'runDirectory'>): Peers {
  try {
    return JSON.parse(readFileSync(fileOf(config), 'utf8')) as Peers;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return {};
    throw error;
  }
}

/** Replaces the list of machines that the processes of this machine read. */
export function writePeers(config: Pick<Config, 'runDirectory'>, peers: Peers): void {
  const file = fileOf(config);
  writeFileSync(`${file}.new`, JSON.stringify(peers), { mode: 0o600 });
  renameSync(`${file}.new`, file);
}

/** The accepted certificates over time. Pure: the caller passes the registry's entries and the time. */
export class PeerList {
  readonly #lastSeen = new Map<string, { readonly machine: string; readonly seenMs: number }>();
  readonly #keptMs: number;
  readonly #readEveryMs: number;
  /** Time of the last read, and the time counted towards `keptMs` up to that read. */
  #lastReadMs = Number.NEGATIVE_INFINITY;
  #countedMs = 0;

  /**
   * @param keptMs for how long the registry must lack a certificate before it is refused: Redis may restart empty, and be filled by renewals
   * @param readEveryMs maximum time between two reads that counts towards `keptMs`: while Redis is away, no machine can renew its entry
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
