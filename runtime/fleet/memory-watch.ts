import { readFileSync } from 'node:fs';
import { GuestTrap } from '../lowering/trap.ts';
import { residentBytes } from '../sandboxes/index.ts';
import type { Sandbox } from './sandbox.ts';

/** Time between two looks at the memory of all sandboxes. */
const LOOK_MS = 250;

/**
 * Limits the memory that the guests of one sandbox may touch together. At each look, a sandbox over the limit loses its newest invocation. A sandbox
 * that grows too fast for these looks reaches the kernel's higher limit (control group or RLIMIT_DATA, see `runtime/sandboxes`), and then loses
 * all of its invocations.
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
      if (!newest) continue;
      const residentBytes = residentBytesOf(sandbox.process.pid);
      if (residentBytes <= this.#limitBytes) continue;
      const limitMb = this.#limitBytes / 2 ** 20;
      newest.kill(
        new GuestTrap(
          'memory-limit',
          `was the newest when the functions of its tenant passed their ${limitMb} MB together ([runtime] sandbox_memory_mb)`,
          { figures: { residentBytes, limitBytes: this.#limitBytes, runs: sandbox.runs } },
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
