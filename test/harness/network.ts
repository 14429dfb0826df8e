import { execFileSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import os from 'node:os';

/** The range for network tests (RFC 2544), which no real network uses. Each concurrent test file uses one /24 network in the range. */
const RANGE = '198.18';
/** A MAC address that no machine has: frames to it are lost. */
const NOWHERE = '02:00:00:00:00:ff';

/**
 * Simulates machines by network namespaces. Each namespace has an address and a cable (a veth pair) to a common switch (a bridge in a namespace
 * of its own). Another cable links this process to the switch. Needs root and `ip`.
 */
export class Network implements Disposable {
  readonly #id = `pie${process.pid}`;
  readonly #names: readonly string[];
  readonly #net = unusedNet();

  constructor(names: readonly string[]) {
    this.#names = names;
    process.once('exit', this.#remove);
    const hub = this.#space('switch');
    ip('netns', 'add', hub);
    ip('-n', hub, 'link', 'add', 'name', 'hub', 'type', 'bridge');
    ip('-n', hub, 'link', 'set', 'dev', 'hub', 'up');
    ip('link', 'add', 'name', this.#id, 'type', 'veth', 'peer', 'name', 'outside', 'netns', hub);
    ip('addr', 'add', `${this.outside}/24`, 'dev', this.#id);
    ip('link', 'set', 'dev', this.#id, 'up');
    ip('-n', hub, 'link', 'set', 'dev', 'outside', 'master', 'hub', 'up');
    for (const name of names) {
      const space = this.#space(name);
      ip('netns', 'add', space);
      ip('link', 'add', 'name', 'cable', 'netns', space, 'type', 'veth', 'peer', 'name', name, 'netns', hub);
      ip('-n', space, 'addr', 'add', `${this.address(name)}/24`, 'dev', 'cable');
      for (const link of ['lo', 'cable']) ip('-n', space, 'link', 'set', 'dev', link, 'up');
      ip('-n', hub, 'link', 'set', 'dev', name, 'master', 'hub', 'up');
    }
  }

  /** The reason why this machine cannot make network namespaces; false if it can. */
  static missingReason(): string | false {
    if (process.getuid?.() !== 0) return 'network namespaces need root';
    const probe = `pie${process.pid}probe`;
    try {
      ip('netns', 'add', probe);
      ip('-n', probe, 'link', 'add', 'name', 'a', 'type', 'veth', 'peer', 'name', 'b');
      return false;
    } catch (error) {
      return `no network namespaces with cables here: ${error instanceof Error ? error.message : error}`;
    } finally {
      quietly('netns', 'del', probe);
    }
  }

  /** The address of this process on the switch. */
  get outside(): string {
    return `${this.#net}.254`;
  }

  address(name: string): string {
    return `${this.#net}.${this.#names.indexOf(name) + 1}`;
  }

  /** The words before a command that runs on a machine. */
  on(name: string): string[] {
    return ['ip', 'netns', 'exec', this.#space(name)];
  }

  /** Ids of the processes on a machine. */
  pids(name: string): number[] {
    const listed = execFileSync('ip', ['netns', 'pids', this.#space(name)], { encoding: 'utf8' });
    return listed.split('\n').filter(Boolean).map(Number);
  }

  /** Pulls a machine's cable. */
  cut(name: string): void {
    ip('-n', this.#space('switch'), 'link', 'set', 'dev', name, 'down');
  }

  /** Puts a machine's cable back. */
  heal(name: string): void {
    ip('-n', this.#space('switch'), 'link', 'set', 'dev', name, 'up');
  }

  /** Drops the frames from one machine to another; frames in the opposite direction arrive. */
  mute(from: string, to: string): void {
    const deadNeighbour = [this.address(to), 'lladdr', NOWHERE, 'nud', 'permanent', 'dev', 'cable'];
    ip('-n', this.#space(from), 'neigh', 'replace', ...deadNeighbour);
  }

  unmute(from: string, to: string): void {
    ip('-n', this.#space(from), 'neigh', 'del', this.address(to), 'dev', 'cable');
  }

  [Symbol.dispose](): void {
    process.off('exit', this.#remove);
    this.#remove();
  }

  readonly #remove = (): void => {
    for (const name of [...this.#names, 'switch']) quietly('netns', 'del', this.#space(name));
    quietly('link', 'del', this.#id);
  };

  #space(name: string): string {
    return `${this.#id}-${name}`;
  }
}

/** Returns a /24 network of `RANGE` that has no address of this machine yet: concurrent test files use other networks of the range. */
function unusedNet(): string {
  const taken = Object.values(os.networkInterfaces()).flatMap((addresses = []) =>
    addresses.map(({ address }) => address),
  );
  for (;;) {
    const net = `${RANGE}.${randomInt(256)}`;
    if (!taken.some((address) => address.startsWith(`${net}.`))) return net;
  }
}

function ip(...words: string[]): void {
  execFileSync('ip', words, { stdio: ['ignore', 'ignore', 'pipe'] });
}

function quietly(...words: string[]): void {
  try {
    ip(...words);
  } catch {
    // The namespace or the link does not exist.
  }
}
