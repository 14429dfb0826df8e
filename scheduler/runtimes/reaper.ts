import type { Admission } from '../admission/admission.ts';
import type { Removals } from '../functions/removals.ts';
import type { Control } from '../invocations/endings.ts';
import type { Invocations } from '../invocations/invocations.ts';
import type { Questions } from '../invocations/questions.ts';
import type { KeyValues } from '../key-values/key-values.ts';
import type { Logger } from '../policies/logger.ts';
import { judgeLateness, type Lateness, MAX_EXCUSED_MS, type ProcessState } from '../policies/silence.ts';
import type { Quotas } from '../quotas/quotas.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { PlatformClock } from '../store/platform-clock.ts';
import type { Store } from '../store/store.ts';
import { LEASE_MS } from './lease.ts';
import type { Runtimes } from './runtimes.ts';

const DUE = loadScript(new URL('./runtimes.lua', import.meta.url), 'due');

/** Rounds per lease in which the reaper checks leases and deadlines. */
const ROUNDS_PER_LEASE = 5;
/**
 * Maximum number of living runtimes with which each reaper keeps to `ROUNDS_PER_LEASE`. With more runtimes each reaper waits longer, so that all
 * together ask Redis no more often.
 */
const REAPERS_AT_PACE = 8;
/**
 * Minimum time between two answers of Redis that list the due work, in a platform with more than `REAPERS_AT_PACE` runtimes, as a fraction of the
 * time between two rounds. A reaper that asks earlier gets only the number of living runtimes.
 */
const PACE = 1 / 2;
/** Fraction of a lease. When no reaper has asked Redis for that long, leases may have run out because Redis stood still. */
const PAUSE = 1 / 2;
/** Checks per lease for a pause of this process. */
const BEATS_PER_LEASE = 10;
/** Fraction of a lease. A longer delay means that this process or Redis stood still. */
const STANDSTILL = 1 / 4;
/** Interval of the search for faults: jobs without a registered runtime, and counters that do not equal what they count. */
const SEARCH_INTERVAL_MS = 5000;
/** A runtime ends its overdue invocations itself. After this grace the reaper ends those that remain. */
const DEADLINE_GRACE_MS = 5000;
/** Maximum overdue invocations, and maximum questions without an answer in time, that one round handles. */
const OVERDUE_COUNT = 200;

export interface ReaperOptions {
  readonly store: Store;
  readonly runtimes: Runtimes;
  readonly invocations: Invocations;
  readonly control: Control;
  readonly questions: Questions;
  readonly admission: Admission;
  readonly keyValues: KeyValues;
  readonly removals: Removals;
  readonly quotas: Quotas;
  /** Length of a lease; 3,000 ms by default. */
  readonly leaseMs?: number;
  /** Gets the time of Redis in every round. */
  readonly clock?: PlatformClock;
  readonly log: Logger;
}

/**
 * Ensures that every invocation ends. The reaper recovers the invocations of dead runtimes, fails overdue ones, and admits those that fit
 * and that no other process has admitted. It puts debounced invocations into their queues, ends waits for a person, and drops expired
 * stored values. Each gateway and runtime runs one; any number may run at once.
 *
 * Each round asks Redis one question (`due` of `runtimes.lua`), which checks only leases that may have run out since it last read them. It counts no runtime as
 * dead until reapers have asked for the length of a lease without a pause of half a lease: while Redis stood still, no runtime could renew its lease.
 */
export class Reaper {
  readonly #options: ReaperOptions;
  readonly #leaseMs: number;
  #timer: NodeJS.Timeout | undefined;
  #beatTimer: NodeJS.Timeout | undefined;
  #beatAt = 0;
  /** Time from which every living runtime has been able to renew its lease. */
  #reachableSince = 0;
  #searchedAt = 0;
  /** Number of living runtimes. The reaper of a dead runtime asks nothing, so dead ones do not count. */
  #livingCount = 0;
  /** Runtimes whose lease has run out, and that are not lost yet. */
  readonly #late = new Map<string, { readonly lateness: Lateness; readonly state: ProcessState }>();
  #currentRound: Promise<void> | undefined;
  #isStopped = true;
  readonly #onReady = () => {
    this.#reachableSince = performance.now();
  };

  constructor(options: ReaperOptions) {
    this.#options = options;
    this.#leaseMs = options.leaseMs ?? LEASE_MS;
  }

  start(): void {
    if (!this.#isStopped) return;
    this.#isStopped = false;
    // Runtimes may have been unable to renew their leases until now. As after a reconnection (`#onReady`), all of them get the time to do so.
    this.#reachableSince = performance.now();
    this.#beatAt = performance.now();
    this.#beatTimer = setInterval(() => this.#heedPause(), this.#leaseMs / BEATS_PER_LEASE);
    this.#options.store.redis.on('ready', this.#onReady);
    this.#schedule();
  }

  /** Stops, and waits for the current round. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    clearInterval(this.#beatTimer);
    this.#options.store.redis.off('ready', this.#onReady);
    await this.#currentRound;
  }

  #schedule(): void {
    if (this.#isStopped) return;
    this.#timer = setTimeout(() => {
      this.#currentRound = this.#round()
        .catch((error: unknown) =>
          this.#options.log.error({ error: StoreError.from(error) }, 'a round of the reaper failed'),
        )
        .finally(() => this.#schedule());
    }, this.#waitMs());
  }

  /** Time until the next round. In a large platform it is random, so that the reapers spread over the time. */
  #waitMs(): number {
    const waitMs = this.#leaseMs / ROUNDS_PER_LEASE;
    const waitFactor = this.#livingCount / REAPERS_AT_PACE;
    return waitFactor <= 1 ? waitMs : waitMs * waitFactor * 2 * Math.random();
  }

  async #round(): Promise<void> {
    const { runtimes, invocations, questions, admission, keyValues, removals } = this.#options;
    const askedAt = performance.now();
    const dueWork = await this.#readDue();
    this.#livingCount = typeof dueWork === 'number' ? dueWork : dueWork.living;
    // Redis or its connection stood still, so the runtimes' renewals were delayed too.
    if (performance.now() - askedAt > this.#leaseMs * STANDSTILL) this.#reachableSince = performance.now();
    if (typeof dueWork === 'number') return;
    // These have renewed their lease, or another reaper has recovered their invocations.
    for (const id of this.#late.keys()) if (!dueWork.dead.includes(id)) this.#late.delete(id);
    for (const id of dueWork.dead) await this.#step(() => this.#judge(id));
    for (const id of dueWork.overdue) await this.#step(() => this.#failOne(id));
    for (const id of dueWork.unanswered) await this.#step(() => questions.expire(id));
    if (dueWork.debounced) await this.#step(() => invocations.releaseDebounced());
    if (dueWork.waiting) await this.#step(() => admission.admit());
    if (dueWork.expired) await this.#step(() => keyValues.sweep());
    if (dueWork.removals) await this.#step(() => removals.sweep());
    // Searches at least once per lease. The first search after a start or a reconnection cannot trust leases; a search one lease later can.
    if (performance.now() - this.#searchedAt < Math.min(SEARCH_INTERVAL_MS, this.#leaseMs)) return;
    this.#searchedAt = performance.now();
    if (this.#canTrustLeases) await this.#step(() => runtimes.recoverOrphans(SEARCH_INTERVAL_MS));
    await this.#step(() => this.#repair());
    await this.#step(() => this.#repairAccounts());
  }

  /**
   * Asks in one command for all work that is due, so that an idle platform makes no other call. Resolves to the number of living runtimes when
   * another reaper has just asked.
   */
  async #readDue() {
    const { store, clock } = this.#options;
    const { keys } = store;
    const dueKeys = [
      keys.deadlines,
      keys.admissionTenants,
      keys.storedSweeps,
      keys.removals,
      keys.debounced,
      keys.questions,
    ];
    const waitMs = this.#leaseMs / ROUNDS_PER_LEASE;
    const args = [keys.prefix, store.clock(), OVERDUE_COUNT, this.#leaseMs, this.#leaseMs * PAUSE];
    const pace = [waitMs * PACE, REAPERS_AT_PACE];
    const askedAt = clock?.steadyTime() ?? 0;
    const reply = await store.script(DUE, [keys.runtimes, ...dueKeys, keys.looks], [...args, ...pace]);
    const [time, dead, overdue, waiting, expired, removals, debounced, unanswered, living] = Array.isArray(reply)
      ? reply
      : [];
    if (typeof time === 'number') clock?.adjust(time, askedAt);
    // Another reaper has just asked: the second value is the number of living runtimes.
    if (typeof dead === 'number') return dead;
    if (!Array.isArray(dead) || !Array.isArray(overdue) || !Array.isArray(unanswered))
      throw new StoreError('store-corrupt', `The script due answered ${JSON.stringify(reply)}.`);
    return {
      dead: dead.map(String),
      overdue: overdue.map(String),
      waiting: waiting === 1,
      expired: expired === 1,
      removals: removals === 1,
      debounced: debounced === 1,
      unanswered: unanswered.map(String),
      living: Number(living),
    };
  }

  /** Decides whether a runtime whose lease has run out is lost, and recovers its invocations if it is. */
  async #judge(id: string): Promise<void> {
    const { runtimes, log } = this.#options;
    const look = await runtimes.look(id);
    // The replies may have arrived only after a reconnection or a pause, in which the runtime could not renew its lease either.
    if (!this.#canTrustLeases) {
      this.#late.delete(id);
      return;
    }
    const before = this.#late.get(id);
    const limits = { allowedMs: this.#leaseMs, graceMs: this.#leaseMs };
    const { lateness, verdict } = judgeLateness(before?.lateness, performance.now(), look, limits);
    const figures = {
      silentMs: verdict.silentMs,
      leaseMs: this.#leaseMs,
      ...(look && 'state' in look && { look: look.state }),
    };
    if (verdict.kind === 'lost') {
      this.#late.delete(id);
      await runtimes.recover(id, { why: verdict.why, ...figures }, true);
      return;
    }
    if (before?.state !== verdict.state)
      log.warn(
        { runtime: id, ...figures, limitMs: MAX_EXCUSED_MS },
        `a runtime has not renewed its lease; its supervisor sees its process, which is ${verdict.state}: its invocations go on`,
      );
    this.#late.set(id, { lateness, state: verdict.state });
  }

  /** Reports a failed step and continues with the next one, unless Redis is away. */
  async #step(work: () => Promise<unknown>): Promise<void> {
    try {
      await work();
    } catch (caught) {
      const error = StoreError.from(caught);
      if (error.code === 'store-unavailable' && !error.full) throw error;
      this.#options.log.error({ error }, 'a step of the reaper failed');
    }
  }

  /** A pause of this process may have hit the runtimes too. As after a reconnection, all of them get the time to renew their leases. */
  #heedPause(): void {
    const now = performance.now();
    const delayMs = now - this.#beatAt - this.#leaseMs / BEATS_PER_LEASE;
    if (delayMs > this.#leaseMs * STANDSTILL) this.#reachableSince = now;
    this.#beatAt = now;
  }

  /** True when Redis has been reachable long enough that every living runtime has renewed its lease. */
  get #canTrustLeases(): boolean {
    // After a pause, Redis's reply may be processed before the late timer.
    this.#heedPause();
    return performance.now() - this.#reachableSince > this.#leaseMs;
  }

  async #repair(): Promise<void> {
    const { admission, invocations, log } = this.#options;
    const repairs = await admission.repair();
    if (repairs === null) return;
    const { dropped, returned, sums, lost } = repairs;
    for (const id of lost) {
      await this.#step(() => invocations.fail(id, 'internal', 'Redis has lost the input of this invocation.'));
    }
    if (dropped + returned + sums > 0)
      log.error({ dropped, returned, sums }, 'the ledger of admitted invocations was wrong, and was corrected');
  }

  async #repairAccounts(): Promise<void> {
    const correctedCount = await this.#options.quotas.repairAccounts();
    if (correctedCount === null || correctedCount === 0) return;
    this.#options.log.error(
      { tenants: correctedCount },
      'accounts did not equal what their tenants keep in Redis, and were corrected',
    );
  }

  async #failOne(id: string): Promise<void> {
    const { store, invocations } = this.#options;
    const now = store.clock();
    const invocation = await invocations.get(id);
    if (invocation === null) {
      await store.call((redis) => redis.zrem(store.keys.deadlines, id));
    } else if (invocation.status === 'queued') {
      const message = `The invocation waited ${invocation.deadlineMs} ms without being started.`;
      const waitedMs = now - invocation.submittedAt;
      await invocations.fail(id, 'deadline-exceeded', message, '', { waitedMs, limitMs: invocation.deadlineMs });
    } else if (now > invocation.submittedAt + invocation.deadlineMs + DEADLINE_GRACE_MS) {
      const message = `The invocation ran past its deadline of ${invocation.deadlineMs} ms.`;
      const ageMs = now - invocation.submittedAt;
      await invocations.fail(id, 'deadline-exceeded', message, '', { ageMs, limitMs: invocation.deadlineMs });
    }
  }
}
