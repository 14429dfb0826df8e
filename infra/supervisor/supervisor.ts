import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '../log.ts';
import { Child, type ChildSpec } from './child.ts';
import { ChildLog } from './child-log.ts';

/** An event that the supervisor reports to its owner. */
export type SupervisorEvent =
  | {
      readonly kind: 'ready';
      readonly name: string;
      readonly pid: number | undefined;
      readonly afterMs: number;
      readonly restarted: boolean;
      /** A warning for the operator about this start. */
      readonly notice?: string;
    }
  | {
      readonly kind: 'died';
      readonly name: string;
      readonly why: string;
      readonly restartInMs: number;
      readonly tail: string;
    };

/** A running child that is watched: what it did at the last look, and the time since its last beat, ms. */
interface ChildLook extends NonNullable<Child['seen']> {
  readonly name: string;
  readonly pid: number;
}

/** The end of a child. */
interface ChildEnd {
  readonly name: string;
  readonly pid: number;
  /** Reason of the end, in words. */
  readonly why: string;
  /** Time since its last beat, ms; 0 when its event loop turned until the end. */
  readonly silentMs: number;
}

/** Time for which the supervisor reports the end of a child, ms. */
const END_REPORTED_MS = 60_000;
/** Maximum ends that it reports. */
const MAX_ENDS = 16;

interface Slot {
  readonly spec: ChildSpec;
  readonly log: ChildLog;
  child: Child;
  history: RestartHistory;
  restarts: number;
}

/**
 * Starts child processes, restarts those that die, and kills those that are silent (`watch-policy.ts`). `stop` stops
 * them stage by stage. The children of a dead supervisor end through their lifeline (`infra/lifeline.ts`).
 */
export class Supervisor {
  readonly #logsDirectory: string;
  readonly #log: Logger;
  readonly #decisions: Logger | undefined;
  readonly #report: (event: SupervisorEvent) => void;
  readonly #slots: Slot[] = [];
  readonly #stopping = new AbortController();
  readonly #spawning = new Set<Promise<unknown>>();
  #ends: (ChildEnd & { readonly atMs: number })[] = [];

  /** @param options `decisions` gets each start, end, restart and kill of a child; `log` gets faults of the supervisor */
  constructor(options: {
    logsDirectory: string;
    log: Logger;
    decisions?: Logger;
    report: (event: SupervisorEvent) => void;
  }) {
    this.#log = options.log;
    this.#decisions = options.decisions;
    this.#logsDirectory = options.logsDirectory;
    this.#report = options.report;
    mkdirSync(this.#logsDirectory, { recursive: true });
  }

  /** Starts the children in parallel and waits until all are ready. Throws the first failure. */
  async start(specs: readonly ChildSpec[]): Promise<void> {
    await Promise.all(
      specs.map(async (spec) => {
        const file = path.join(this.#logsDirectory, `${spec.name}.log`);
        const log = new ChildLog(file, (why) =>
          this.#log.warn({ file, why }, 'a log cannot be written; lines are lost'),
        );
        const slot = await this.#spawn(spec, log, 0, (child) => {
          const newSlot: Slot = { spec, log, child, history: NO_HISTORY, restarts: 0 };
          this.#slots.push(newSlot);
          return newSlot;
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

  /** The last look at each watched child, and the ends of the last minute, oldest first. */
  looks(): { readonly running: readonly ChildLook[]; readonly ended: readonly ChildEnd[] } {
    const running = this.#slots.flatMap(({ spec: { name }, child: { pid, seen } }) =>
      pid === undefined || seen === null ? [] : [{ name, pid, ...seen }],
    );
    this.#ends = this.#ends.filter(({ atMs }) => performance.now() - atMs < END_REPORTED_MS).slice(-MAX_ENDS);
    return { running, ended: this.#ends.map(({ atMs: _, ...end }) => end) };
  }

  /**
   * Stops the children stage by stage, those of one stage in parallel. Children that no stage names stop last, after `beforeLast`. `looks` has each
   * child until its end.
   */
  async stop(stages: readonly (readonly string[])[], beforeLast?: () => Promise<void>): Promise<void> {
    this.#stopping.abort();
    await Promise.allSettled(this.#spawning);
    const stagedNames = new Set(stages.flat());
    const unnamed = this.#slots.map((slot) => slot.spec.name).filter((name) => !stagedNames.has(name));
    const stop = async (stage: readonly string[]) => {
      const slots = this.#slots.filter((slot) => stage.includes(slot.spec.name));
      await Promise.all(
        slots.map(async ({ spec, child }) => {
          await child.stop();
          this.#decisions?.info({ child: spec.name, cause: await child.exited, ...child.endFields }, 'a process ended');
        }),
      );
    };
    for (const stage of stages) await stop(stage);
    await beforeLast?.();
    await stop(unnamed);
    await Promise.all(this.#slots.map((slot) => slot.log.end()));
  }

  /** Ends every child now. */
  kill(): void {
    this.#stopping.abort();
    for (const slot of this.#slots) slot.child.kill();
  }

  /**
   * Spawns a child and passes it to `record`. When `stop` has begun meanwhile, kills the child. `stop` waits for the
   * record, and then for the end of the child.
   */
  async #spawn<T>(spec: ChildSpec, log: ChildLog, restarts: number, record: (child: Child) => T): Promise<T> {
    const spawning = Child.spawn(spec, log, restarts).then((child) => {
      const recorded = record(child);
      if (this.#stopping.signal.aborted) child.kill();
      return recorded;
    });
    this.#spawning.add(spawning);
    try {
      return await spawning;
    } finally {
      this.#spawning.delete(spawning);
    }
  }

  /** Waits for the end of the present child, and notes it for `looks`. */
  async #endOf({ spec: { name }, child }: Slot): Promise<string> {
    const why = await child.exited;
    if (child.pid !== undefined)
      this.#ends.push({ name, pid: child.pid, why, silentMs: child.silentMs, atMs: performance.now() });
    return why;
  }

  async #whenReady(slot: Slot, restarted: boolean): Promise<void> {
    const { notice } = await slot.child.whenReady();
    const { pid, startedAt } = slot.child;
    const afterMs = Math.round(performance.now() - startedAt);
    this.#decisions?.info(
      { child: slot.spec.name, pid, afterMs, restarts: slot.restarts, ...(notice !== undefined && { notice }) },
      'a process is ready',
    );
    this.#report({
      kind: 'ready',
      name: slot.spec.name,
      pid,
      afterMs,
      restarted,
      ...(notice !== undefined && { notice }),
    });
  }

  async #keepAlive(slot: Slot): Promise<void> {
    let startedAt = slot.child.startedAt;
    let why = await this.#endOf(slot);
    /** The process that died; undefined when there was none. */
    let ended: Child | undefined = slot.child;
    while (!this.#stopping.signal.aborted) {
      const livedMs = Math.round(performance.now() - startedAt);
      const { delayMs, history } = afterDeath(slot.history, livedMs);
      slot.history = history;
      const { quickDeaths } = history;
      this.#decisions?.error(
        { child: slot.spec.name, cause: why, ...ended?.endFields, livedMs, quickDeaths, restartInMs: delayMs },
        'a process died, and starts again',
      );
      this.#report({ kind: 'died', name: slot.spec.name, why, restartInMs: delayMs, tail: slot.child.tail });
      try {
        await sleep(delayMs, undefined, { signal: this.#stopping.signal });
      } catch {
        return; // The supervisor is stopping.
      }
      slot.restarts += 1;
      startedAt = performance.now();
      try {
        await this.#spawn(slot.spec, slot.log, slot.restarts, (child) => {
          slot.child = child;
        });
      } catch (error) {
        // The system may refuse a process, for example for lack of a free file descriptor. The next turn of the loop
        // tries again after a pause.
        why = `it could not be started: ${error instanceof Error ? error.message : String(error)}`;
        ended = undefined;
        continue;
      }
      // A child that fails to start has exited; the next turn of the loop reports the death and retries after a pause.
      ended = slot.child;
      const late = await this.#whenReady(slot, true).then(
        () => null,
        (error: Error) => error.message.split('\n', 1)[0] ?? '',
      );
      const exit = await this.#endOf(slot);
      why = late === null ? exit : `${late} (${exit})`;
    }
  }
}

/** Pause before the first restart. Each further quick death doubles the pause, up to `MAX_DELAY_MS`. */
const FIRST_DELAY_MS = 50;
const MAX_DELAY_MS = 5000;
/** A death is quick when the child lived for less than this time. After a death that is not quick, the pause is `FIRST_DELAY_MS` again. */
const HEALTHY_AFTER_MS = 20_000;

/** The part of a child's history that decides the next pause. */
interface RestartHistory {
  /** Number of quick deaths in a row. A death after {@link HEALTHY_AFTER_MS} starts the count again at 1. */
  readonly quickDeaths: number;
}

/** History of a child that has not died yet. */
export const NO_HISTORY: RestartHistory = { quickDeaths: 0 };

/**
 * Decides the restart of a child that has just died.
 * @param history the child's history before this death
 * @param livedMs time from the child's start to its death
 * @returns the pause before the restart, and the history that includes this death
 */
export function afterDeath(history: RestartHistory, livedMs: number): { delayMs: number; history: RestartHistory } {
  const isQuick = livedMs < HEALTHY_AFTER_MS;
  const quickDeaths = isQuick ? history.quickDeaths + 1 : 1;
  const delayMs = Math.min(FIRST_DELAY_MS * 2 ** (quickDeaths - 1), MAX_DELAY_MS);
  return { delayMs, history: { quickDeaths } };
}
