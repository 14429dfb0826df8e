import type { BatchCall, LatencyTargets } from './call.ts';
import { type BatchLimits, mostShortTokens } from './select.ts';
import { isMoreUrgent } from './urgency.ts';

/** Maximum batches in a row that pass over the most urgent ordinary call. */
export const MAX_PASSED_OVER = 3;
/** Factor by which the estimate of a slow step falls with each faster step. */
const FORGET = 0.9;
/** The same factor after a step with pressing calls. Ordinary prefills were cut short for it, so it shows little about full steps. */
const FORGET_CUT = 0.995;

/** Time at which the call's step should have ended; infinite for a call without targets. */
function dueMs(call: BatchCall, limits: BatchLimits): number {
  const { targets } = call.queue;
  if (!targets) return Number.POSITIVE_INFINITY;
  // The target is set only once: the last part of a cut prompt may be short, and would get the target of a token.
  call.targetMs ??= targetMs(call, targets, limits);
  return call.arrivedMs + call.targetMs;
}

function targetMs(call: BatchCall, { firstTokenMs, perTokenMs }: LatencyTargets, limits: BatchLimits): number {
  if (call.kind === 'encode') return firstTokenMs;
  if (call.kind === 'project' || call.continues || call.tokens === 1) return perTokenMs;
  return call.tokens > mostShortTokens(limits) ? firstTokenMs : Math.min(firstTokenMs, perTokenMs);
}

/**
 * True when a call would miss its target if the next batch left it out. It would then end only after the step of that batch and its own steps.
 *
 * @param slowStepMs duration of a step beside full ordinary prefills; undefined before the first step
 */
function isPressing(call: BatchCall, nowMs: number, slowStepMs: number | undefined, limits: BatchLimits): boolean {
  if (!call.queue.targets) return false;
  if (slowStepMs === undefined) return true;
  const ownSteps = Math.ceil(call.tokens / limits.maxTokens);
  return nowMs + (1 + ownSteps) * slowStepMs > dueMs(call, limits);
}

/**
 * Lets *pressing* calls, which would miss their latency targets otherwise, go before all others in the next batch, the earliest due first. All other
 * calls are *ordinary*, with targets or without. The batch keeps a place for ordinary calls, a quarter of its inputs for short ones and a quarter
 * for long ones; the most urgent go first. Ordinary long calls get no more than their quarter, so that the step stays short (chunked prefill,
 * Agrawal et al., OSDI '24, section 4.2).
 *
 * Ordinary calls do not starve. A batch with pressing calls *passes over* the most urgent ordinary call when it cannot take that call, which may be
 * of another kind or variant, or a prefill that cannot be cut. After `MAX_PASSED_OVER` such batches in a row comes a batch in which all calls count
 * as ordinary. So calls with targets multiply the bound on the wait of others, counted in batches, by at most `MAX_PASSED_OVER + 1`.
 */
export class LatencyTurns {
  readonly #limits: BatchLimits;
  readonly #pressing = new Set<BatchCall>();
  /** Estimated duration of a slow step; undefined before the first step. */
  #slowStepMs: number | undefined;
  /** The most urgent ordinary call that is ready; undefined when none is pressing. */
  #firstOrdinary: BatchCall | undefined;
  /** Batches in a row that have passed over that call. */
  #passedOver = 0;

  constructor(limits: BatchLimits) {
    this.#limits = limits;
  }

  /** Calls that go first in the batch under construction. */
  get pressing(): ReadonlySet<BatchCall> {
    return this.#pressing;
  }

  /** Call when a batch is about to be chosen from `lists`, each in order of urgency. Moves the pressing calls to their fronts. */
  begin(lists: readonly BatchCall[][], nowMs: number): void {
    this.#pressing.clear();
    this.#firstOrdinary = undefined;
    if (this.#passedOver >= MAX_PASSED_OVER) return;
    for (const list of lists)
      for (const call of list) if (isPressing(call, nowMs, this.#slowStepMs, this.#limits)) this.#pressing.add(call);
    if (this.#pressing.size === 0) return;
    for (const list of lists) {
      this.#putFirst(list);
      const first = list.find((call) => !this.#pressing.has(call));
      const other = this.#firstOrdinary;
      if (first && !(other && isMoreUrgent(other, first, this.#limits.agingMs))) this.#firstOrdinary = first;
    }
  }

  /** True when `call` goes before `other`; undefined when their urgency decides. */
  goesBefore(call: BatchCall, other: BatchCall): boolean | undefined {
    const presses = this.#pressing.has(call);
    if (presses !== this.#pressing.has(other)) return presses;
    const aheadMs = presses ? dueMs(other, this.#limits) - dueMs(call, this.#limits) : 0;
    return aheadMs === 0 ? undefined : aheadMs > 0;
  }

  /** Counts a call as pressing, too, when a pressing call awaits its pages. */
  lend(awaitedBy: ReadonlyMap<BatchCall, readonly BatchCall[]>): void {
    for (const [call, waiters] of awaitedBy)
      if (waiters.some((waiter) => this.#pressing.has(waiter))) this.#pressing.add(call);
  }

  /** Call when the batch is made. A call that the batch took is not `ready`. */
  noteBatch(): void {
    const isPassed = this.#pressing.size > 0 && this.#firstOrdinary?.state === 'ready';
    this.#passedOver = isPassed ? this.#passedOver + 1 : 0;
  }

  /** Call when a step of the batch is done. */
  noteStep(stepMs: number): void {
    const decayedMs = (this.#slowStepMs ?? 0) * (this.#pressing.size > 0 ? FORGET_CUT : FORGET);
    this.#slowStepMs = Math.max(stepMs, decayedMs);
  }

  #putFirst(list: BatchCall[]): void {
    const pressingCalls = list.filter((call) => this.#pressing.has(call));
    if (pressingCalls.length === 0) return;
    pressingCalls.sort((a, b) => dueMs(a, this.#limits) - dueMs(b, this.#limits));
    const otherCalls = list.filter((call) => !this.#pressing.has(call));
    // A list may be longer than the arguments that one call of `splice` can take.
    for (const [index, call] of [...pressingCalls, ...otherCalls].entries()) list[index] = call;
  }
}
