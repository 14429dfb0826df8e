import type { LinkSecurity } from '../security.ts';

/** A certificate with its key, as `infra/links` makes it. */
interface Certificate {
  readonly key: string;
  readonly certificate: string;
  readonly fingerprint: string;
}

/** A machine for tests. A test sets the peers that the machine accepts with `accept`. */
export class TestMachine implements LinkSecurity {
  readonly name: string;
  readonly key: string;
  readonly certificate: string;
  readonly fingerprint: string;
  /** The reasons that `refused` got. */
  readonly refusalReasons: string[] = [];
  readonly #listeners = new Set<() => void>();
  #peers: readonly TestMachine[] = [];

  constructor(name: string, certificate: Certificate) {
    this.name = name;
    ({ key: this.key, certificate: this.certificate, fingerprint: this.fingerprint } = certificate);
  }

  machineOf(fingerprint: string): string | undefined {
    return this.#peers.find((peer) => peer.fingerprint === fingerprint)?.name;
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  refused(why: string): void {
    this.refusalReasons.push(why);
  }

  accept(...machines: readonly TestMachine[]): void {
    this.#peers = machines;
    for (const listener of [...this.#listeners]) listener();
  }
}
