import { endingArguments, errorData } from '../invocations/ending.ts';
import type { Retention } from '../invocations/retention.ts';
import { type FailureCode, MAX_ATTEMPTS } from '../invocations/types.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/scripts.ts';
import type { Store } from '../store/store.ts';

const LEAVE_ACTIVE = loadScript(new URL('./scripts/leave-active.lua', import.meta.url));

/** A job that BullMQ counts as active. */
export interface ActiveJob {
  readonly id: string;
  /** The runtime that fetched it. */
  readonly runtimeId: string | null;
  /** When it was fetched, in the runtime's clock. */
  readonly fetchedAt: number;
}

/** `waiting`: back at its place in its tenant's line. `not-held`: that runtime had it no more. */
export type LeaveOutcome = 'dropped' | 'waiting' | 'failed' | 'cancelled' | 'not-held';

/**
 * Jobs in the hands of runtimes. BullMQ moves a job there and writes the runtime's id on it in one step; from there it leaves through one
 * script that settles its invocation as well, so that no invocation is lost between two writes.
 */
export class ActiveJobs {
  readonly #store: Store;
  readonly #retention: Retention;
  readonly #queue: string;

  constructor(store: Store, retention: Retention) {
    this.#store = store;
    this.#retention = retention;
    this.#queue = store.keys.jobs;
  }

  /** Every active job and its holder, but for those of which `passed` is true. */
  async list(passed: (id: string) => boolean = () => false): Promise<ActiveJob[]> {
    const ids = await this.#store.call((redis) => redis.lrange(`${this.#queue}:active`, 0, -1));
    const wanted = ids.filter((id) => !passed(id));
    const jobs = await Promise.all(
      wanted.map(async (id) => {
        const [runtimeId, fetchedAt] = await this.#store.call((redis) =>
          redis.hmget(`${this.#queue}:${id}`, 'pb', 'processedOn'),
        );
        return { id, runtimeId: runtimeId ?? null, fetchedAt: Number(fetchedAt ?? 0) };
      }),
    );
    return jobs;
  }

  /** The runtime that holds a job, or null when none does. */
  async holder(id: string): Promise<string | null> {
    return this.#store.call((redis) => redis.hget(`${this.#queue}:${id}`, 'pb'));
  }

  /**
   * The runtime is done with the job: it is removed, and its invocation ends as `internal` should it not have ended.
   *
   * @param token with which the job was fetched: one that was given back since and fetched again, by the same runtime even, is left alone.
   */
  over(id: string, runtimeId: string, token = ''): Promise<LeaveOutcome> {
    const message = 'The runtime stopped without ending this invocation.';
    return this.#leave(id, runtimeId, 'over', 'internal', message, token);
  }

  /** The runtime is dead: what had begun fails or starts again, the rest goes back in line. */
  lost(id: string, runtimeId: string): Promise<LeaveOutcome> {
    return this.#leave(id, runtimeId, 'lost', 'runtime-lost', 'The runtime that ran this invocation was lost.');
  }

  /** The runtime gives the job back; had it begun, it counts as terminated. `token` as with `over`. */
  giveBack(id: string, runtimeId: string, token = ''): Promise<LeaveOutcome> {
    const message = 'The runtime was shut down before this invocation ended.';
    return this.#leave(id, runtimeId, 'return', 'terminated', message, token);
  }

  async #leave(
    id: string,
    runtimeId: string,
    mode: string,
    code: FailureCode,
    message: string,
    token = '',
  ): Promise<LeaveOutcome> {
    const { keys, args } = endingArguments(this.#store, this.#retention, id);
    const queue = this.#queue;
    const reply = await this.#store.script(
      LEAVE_ACTIVE,
      [...keys, `${queue}:${id}`, `${queue}:active`, `${queue}:stalled`],
      [...args, runtimeId, mode, code, message, errorData(code, message), MAX_ATTEMPTS, this.#store.keys.prefix, token],
    );
    switch (reply) {
      case 'dropped':
      case 'waiting':
      case 'failed':
      case 'cancelled':
      case 'not-held':
        return reply;
      default:
        throw new StoreError('store-corrupt', `leave-active answered ${JSON.stringify(reply)}.`);
    }
  }
}
