import { type EndLog, endMessage, type Loss, lossEnd, type PlatformEnd, UNEXPLAINED } from '../invocations/endings.ts';
import { endingArguments, errorData, type Retention, unexpected } from '../invocations/replies.ts';
import { MAX_ATTEMPTS } from '../invocations/types.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';

const LEAVE_ACTIVE = loadScript(new URL('./jobs.lua', import.meta.url), 'leave-active');

const ORPHANS = loadScript(new URL('./jobs.lua', import.meta.url), 'orphans');

/** An invocation that a runtime holds: a job, or a child (an invocation that another one launched), which has no job. */
export interface Holding {
  readonly id: string;
  readonly runtimeId: string;
}

/** A job that a runtime holds, and the fetch that handed it over. */
export interface HeldJob extends Holding {
  /** Token of the fetch; empty for a job without a lock. */
  readonly fetchToken: string;
}

/** A job that BullMQ counts as active. */
export interface ActiveJob {
  readonly id: string;
  /** Time of the fetch, by the clock of Redis. */
  readonly fetchedAt: number;
  /** Token of the fetch; null for a job without a lock. */
  readonly fetchToken: string | null;
}

/**
 * `dropped`: the job is removed, because its invocation had ended or another runtime runs it. `waiting`: the job is back at its place in its
 * tenant's queue. `failed`, `cancelled`: the invocation ended with this status. `not-held`: the runtime no longer held the job, and nothing changed.
 */
export type LeaveOutcome = 'dropped' | 'waiting' | 'failed' | 'cancelled' | 'not-held';

/**
 * Jobs that runtimes hold. `take-jobs` of jobs.lua marks a job as active and writes the runtime's id on it in one step. `leave-active` of jobs.lua takes the
 * job from the runtime and ends or requeues its invocation in one step. So no invocation is lost between two writes.
 */
export class ActiveJobs {
  readonly #store: Store;
  readonly #endLog: EndLog;
  readonly #retention: Retention;
  readonly #queue: string;

  /** @param endLog gets the ends that this object decides */
  constructor(store: Store, endLog: EndLog, retention: Retention) {
    this.#store = store;
    this.#endLog = endLog;
    this.#retention = retention;
    this.#queue = store.keys.jobs;
  }

  /** Lists the jobs that a runtime holds, except those for which `isExcluded` returns true. */
  async heldBy(runtimeId: string, isExcluded: (id: string) => boolean = () => false): Promise<ActiveJob[]> {
    const ids = await this.#store.call((redis) => redis.smembers(this.#store.keys.held(runtimeId)));
    const wanted = ids.filter((id) => !isExcluded(id));
    const jobs = await Promise.all(
      wanted.map(async (id) => {
        const job = `${this.#queue}:${id}`;
        const [[holder, fetchedAt], fetchToken] = await this.#store.call((redis) =>
          Promise.all([redis.hmget(job, 'pb', 'processedOn'), redis.get(`${job}:lock`)]),
        );
        return { id, holder, fetchedAt: Number(fetchedAt ?? 0), fetchToken };
      }),
    );
    return jobs.filter(({ holder }) => holder === runtimeId);
  }

  /**
   * Lists the held jobs, and the unended children, of runtimes that are not registered. Also lists unended children whose parent's attempt is
   * over. Only the first caller within an interval looks; the others get null.
   */
  async orphans(intervalMs: number): Promise<{ readonly jobs: HeldJob[]; readonly children: Holding[] } | null> {
    const { keys } = this.#store;
    const watched = [`${this.#queue}:active`, keys.children, keys.runtimes, keys.looks];
    const reply = await this.#store.script(ORPHANS, watched, [`${this.#queue}:`, intervalMs, keys.invocation('')]);
    if (reply === null) return null;
    const [jobs, children] = Array.isArray(reply) ? reply : [];
    return {
      jobs: rows(jobs, 3).map(([id = '', runtimeId = '', fetchToken = '']) => ({ id, runtimeId, fetchToken })),
      children: rows(children, 2).map(([id = '', runtimeId = '']) => ({ id, runtimeId })),
    };
  }

  /**
   * Removes a job that its runtime is done with. An invocation that has not ended yet ends as `internal`.
   *
   * @param token the fetch's token, or '' for any. A job that was given back and fetched again, even by the same runtime, has another token
   *   and stays.
   */
  over(id: string, runtimeId: string, token = ''): Promise<LeaveOutcome> {
    const cause = 'The runtime stopped without ending this invocation.';
    return this.#leave(id, runtimeId, 'over', { code: 'internal', cause, figures: { runtime: runtimeId } }, token);
  }

  /**
   * Takes a job from a dead runtime. An attempt that the runtime received fails or restarts; any other job is requeued. `token` as with `over`.
   *
   * @param loss why the runtime counts as lost; the client gets the reason, and the log gets the figures, too
   */
  lost(id: string, runtimeId: string, token = '', loss: Loss = UNEXPLAINED): Promise<LeaveOutcome> {
    return this.#leave(id, runtimeId, 'lost', lossEnd(runtimeId, loss), token);
  }

  /** Gives a job back on behalf of its runtime. A received attempt that cannot restart fails as `terminated`. `token` as with `over`. */
  giveBack(id: string, runtimeId: string, token = ''): Promise<LeaveOutcome> {
    const cause = 'The runtime was shut down before this invocation ended.';
    return this.#leave(id, runtimeId, 'return', { code: 'terminated', cause, figures: { runtime: runtimeId } }, token);
  }

  async #leave(id: string, runtimeId: string, mode: string, end: PlatformEnd, token: string): Promise<LeaveOutcome> {
    const { keys, args } = endingArguments(this.#store, this.#retention, id);
    const { code, cause } = end;
    const text = endMessage(end);
    const queue = this.#queue;
    const reply = await this.#store.script(
      LEAVE_ACTIVE,
      [...keys, `${queue}:${id}`, `${queue}:active`, `${queue}:stalled`],
      [
        ...args,
        runtimeId,
        mode,
        code,
        text,
        errorData(code, text),
        MAX_ATTEMPTS,
        this.#store.keys.prefix,
        token,
        cause,
      ],
    );
    if (Array.isArray(reply)) {
      const [outcome, tenant, name] = reply.map(String);
      const isOver = outcome === 'failed';
      const ended = { invocation: id, tenant: tenant ?? '', function: name ?? '' };
      this.#endLog.note(ended, end, isOver ? 'ended' : 'starts-again');
      return isOver ? 'failed' : 'waiting';
    }
    switch (reply) {
      case 'dropped':
      case 'waiting':
      case 'cancelled':
      case 'not-held':
        return reply;
      default:
        throw unexpected('leave-active', reply);
    }
  }
}

/** Splits a flat list from `orphans` of jobs.lua into rows of `width` values. */
function rows(reply: unknown, width: number): string[][] {
  if (!Array.isArray(reply)) throw unexpected('orphans', reply);
  return Array.from({ length: reply.length / width }, (_, i) => reply.slice(width * i, width * (i + 1)).map(String));
}
