import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Config } from '../config.ts';

const fileOf = ({ runDirectory }: Pick<Config, 'runDirectory'>): string => path.join(runDirectory, 'peers.json');

/** Names of machines by the fingerprints of their certificates. */
export type Peers = Readonly<Record<string, string>>;

/** The machines whose certificates are accepted, as the supervisor wrote them last; none without a file. */
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
