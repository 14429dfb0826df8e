import { readFileSync } from 'node:fs';
import { GuestTrap } from '../lowering/trap.ts';
import { residentBytes } from '../sandboxes/index.ts';
import type { Sandbox } from './sandbox.ts';

const LOOK_MS = 250;

/**
 * Limits the memory that the guests of one sandbox may touch together. A sandbox over the limit loses its newest
 * invocation at each look until it is below. A sandbox that grows too fast for these looks passes the kernel's higher
 * limit (control group or RLIMIT_DATA, see `runtime/sandboxes`), and loses all of its invocations.
 */
export class MemoryWatch {
  readonly #sandboxes: () => Iterable<Sandbox>;
  readonly #limitBytes: number;
  readonly #timer: NodeJS.Timeout;

  constructor(sandboxes: () => Iterable<Sandbox>, limitMb: number) {
    this.#sandboxes = sandboxes;
    this.#limitBytes = limitMb * 2 ** 20;
    this.#timer = setInterval(() => this.#look(), LOOK_MS).unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    for (const sandbox of this.#sandboxes()) {
      const { newest } = sandbox;
      if (!newest || residentBytesOf(sandbox.process.pid) <= this.#limitBytes) continue;
      const limitMb = this.#limitBytes / 2 ** 20;
      newest.kill(
        new GuestTrap(
          'memory-limit',
          `was the newest when the functions of its tenant passed their ${limitMb} MB together ([runtime] sandbox_memory_mb)`,
        ),
      );
    }
  }
}

/** Resident memory of a process; 0 when the system does not report it, or the process has ended. */
function residentBytesOf(pid: number): number {
  try {
    return residentBytes(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return 0;
  }
}
