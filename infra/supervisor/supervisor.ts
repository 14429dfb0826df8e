import { createWriteStream, mkdirSync, type WriteStream } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Child, type ChildSpec } from './child.ts';
import { afterDeath, NO_HISTORY, type RestartHistory } from './restart-policy.ts';

/** What the supervisor tells its owner. */
export type SupervisorEvent =
  | {
      readonly kind: 'ready';
      readonly name: string;
      readonly pid: number | undefined;
      readonly afterMs: number;
      readonly restarted: boolean;
      /** What the operator should know of this start. */
      readonly notice?: string;
    }
  | {
      readonly kind: 'died';
      readonly name: string;
      readonly why: string;
      readonly restartInMs: number;
      readonly tail: string;
    };

interface Slot {
  readonly spec: ChildSpec;
  readonly log: WriteStream;
  child: Child;
  history: RestartHistory;
  restarts: number;
}

/**
 * Starts processes in order, starts again what dies, kills what is silent (`watch-policy.ts`), and stops them in the reverse order. Children that outlive a dead supervisor end by
 * their lifeline (`infra/lifeline.ts`).
 */
export class Supervisor {
  readonly #logsDirectory: string;
  readonly #report: (event: SupervisorEvent) => void;
  readonly #slots: Slot[] = [];
  readonly #stopping = new AbortController();
  readonly #spawning = new Set<Promise<unknown>>();

  constructor(options: { logsDirectory: string; report: (event: SupervisorEvent) => void }) {
    this.#logsDirectory = options.logsDirectory;
    this.#report = options.report;
    mkdirSync(this.#logsDirectory, { recursive: true });
  }

  /** Starts these side by side and waits until all are ready. Throws the first failure. */
  async start(specs: readonly ChildSpec[]): Promise<void> {
    await Promise.all(
      specs.map(async (spec) => {
        const log = createWriteStream(path.join(this.#logsDirectory, `${spec.name}.log`), { flags: 'a' });
        const slot = await this.#spawn(spec, log, 0, (child) => {
          const made: Slot = { spec, log, child, history: NO_HISTORY, restarts: 0 };
          this.#slots.push(made);
          return made;
        });
        await this.#whenReady(slot, false);
        void this.#keepAlive(slot);
      }),
    );
  }

  /** Process ids by name. */
  pids(): Record<string, number | undefined> {
    return Object.fromEntries(this.#slots.map((slot) => [slot.spec.name, slot.child.pid]));
  }

  /** Stops the named children side by side, in the given order of stages; a child that no stage names is stopped last. */
  async stop(stages: readonly (readonly string[])[]): Promise<void> {
    this.#stopping.abort();
    await Promise.allSettled(this.#spawning);
    const named = new Set(stages.flat());
    const rest = this.#slots.map((slot) => slot.spec.name).filter((name) => !named.has(name));
    for (const stage of [...stages, rest]) {
      const slots = this.#slots.filter((slot) => stage.includes(slot.spec.name));
      await Promise.all(slots.map((slot) => slot.child.stop()));
    }
    await Promise.all(this.#slots.map((slot) => new Promise<void>((resolve) => slot.log.end(() => resolve()))));
  }

  /** Ends every child now. */
  kill(): void {
    this.#stopping.abort();
    for (const slot of this.#slots) slot.child.kill();
  }

  /** What comes into being while all are stopped is killed, and is there to be waited for. */
  async #spawn<T>(spec: ChildSpec, log: WriteStream, restarts: number, keep: (child: Child) => T): Promise<T> {
    const spawning = Child.spawn(spec, log, restarts).then((child) => {
      const kept = keep(child);
      if (this.#stopping.signal.aborted) child.kill();
      return kept;
    });
    this.#spawning.add(spawning);
    try {
      return await spawning;
    } finally {
      this.#spawning.delete(spawning);
    }
  }

  async #whenReady(slot: Slot, restarted: boolean): Promise<void> {
    const { notice } = await slot.child.whenReady();
    this.#report({
      kind: 'ready',
      name: slot.spec.name,
      pid: slot.child.pid,
      afterMs: Date.now() - slot.child.startedAt,
      restarted,
      ...(notice !== undefined && { notice }),
    });
  }

  async #keepAlive(slot: Slot): Promise<void> {
    while (!this.#stopping.signal.aborted) {
      const why = await slot.child.exited;
      if (this.#stopping.signal.aborted) return;
      const { delayMs, history } = afterDeath(slot.history, Date.now() - slot.child.startedAt);
      slot.history = history;
      this.#report({ kind: 'died', name: slot.spec.name, why, restartInMs: delayMs, tail: slot.child.tail });
      try {
        await sleep(delayMs, undefined, { signal: this.#stopping.signal });
      } catch {
        return; // Stopping.
      }
      slot.restarts += 1;
      await this.#spawn(slot.spec, slot.log, slot.restarts, (child) => {
        slot.child = child;
      });
      // A child that fails to start has exited; the next turn of the loop reports it and tries again, later.
      await this.#whenReady(slot, true).catch(() => undefined);
    }
  }
}
