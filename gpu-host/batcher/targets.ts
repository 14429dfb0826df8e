import type { BatchCall } from './call.ts';
import { type BatchLimits, mostShortTokens } from './select.ts';
import { isMoreUrgent } from './urgency.ts';

/** Latency targets of an inferlet's calls, milliseconds from a call's arrival to the end of its step. */
export interface LatencyTargets {
  /** For calls that encode an image, and for calls of several inputs, which may compute a prompt. */
  readonly firstTokenMs: number;
  /**
   * For calls of one input, for each later step of a run, and for calls that only make distributions. A short call of several inputs may also
   * verify guesses of one text, so the smaller of both targets holds for it.
   */
  readonly perTokenMs: number;
}

/** Batches in a row that may pass over the most urgent ordinary call. */
export const MAX_PASSED_OVER = 3;
/** Factor by which the estimate of a slow step falls with each faster step. */
const FORGET = 0.9;
/** The same factor for steps with pressing calls, which are short because ordinary prefills were cut: they show little about full steps. */
const FORGET_CUT = 0.995;

/** Time at which the call's step should have ended; infinite for a call without targets. */
function dueMs(call: BatchCall, limits: BatchLimits): number {
  const { targets } = call.queue;
  if (!targets) return Number.POSITIVE_INFINITY;
  // Set it once: the last part of a cut prompt may be short, and would get the target of a token.
  call.targetMs ??= targetMs(call, targets, limits);
  return call.arrivedMs + call.targetMs;
}

function targetMs(call: BatchCall, { firstTokenMs, perTokenMs }: LatencyTargets, limits: BatchLimits): number {
  if (call.kind === 'encode') return firstTokenMs;
  if (call.kind === 'project' || call.continues || call.tokens === 1) return perTokenMs;
  return call.tokens > mostShortTokens(limits) ? firstTokenMs : Math.min(firstTokenMs, perTokenMs);
}

/**
 * True when a call would miss its target if the next batch left it out: it then has that step to wait for, and its own steps after it.
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
 * Lets calls that would miss their latency targets go before others, in the next batch, the earliest due first. Ordinary calls go along, the
 * most urgent first: the batch keeps a place for them, a quarter of its inputs for short calls and a quarter for long ones. Ordinary long calls
 * get no more than that, so that the step stays short (chunked prefill, Agrawal et al., OSDI '24, section 4.2).
 *
 * Ordinary calls do not starve. A batch with pressing calls that has no room for the most urgent ordinary call (another kind, another
 * variant, a prefill that cannot be cut) passes it over; after `MAX_PASSED_OVER` of these in a row comes a batch in which calls with
 * targets count as ordinary. Calls with targets thus lengthen the bound on the wait of others, in batches, at most `MAX_PASSED_OVER + 1` times.
 */
export class LatencyTurns {
  readonly #limits: BatchLimits;
  readonly #pressing = new Set<BatchCall>();
  #slowStepMs: number | undefined;
  /** The most urgent ordinary call of the batch under construction. */
  #head: BatchCall | undefined;
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
    this.#head = undefined;
    if (this.#passedOver >= MAX_PASSED_OVER) return;
    for (const list of lists)
      for (const call of list) if (isPressing(call, nowMs, this.#slowStepMs, this.#limits)) this.#pressing.add(call);
    if (this.#pressing.size === 0) return;
    for (const list of lists) {
      this.#putFirst(list);
      const head = list.find((call) => !this.#pressing.has(call));
      if (head && !(this.#head && isMoreUrgent(this.#head, head, this.#limits.agingMs))) this.#head = head;
    }
  }

  /** True when `call` goes before `other`; undefined when their urgency decides. */
  goesBefore(call: BatchCall, other: BatchCall): boolean | undefined {
    const presses = this.#pressing.has(call);
    if (presses !== this.#pressing.has(other)) return presses;
    const aheadMs = presses ? dueMs(other, this.#limits) - dueMs(call, this.#limits) : 0;
    return aheadMs === 0 ? undefined : aheadMs > 0;
  }

  /** Adds the calls whose pages a pressing call awaits to the pressing ones. */
  lend(awaitedBy: ReadonlyMap<BatchCall, readonly BatchCall[]>): void {
    for (const [call, waiters] of awaitedBy)
      if (waiters.some((waiter) => this.#pressing.has(waiter))) this.#pressing.add(call);
  }

  /** Call when the batch is made. */
  noteBatch(): void {
    const isPassed = this.#pressing.size > 0 && this.#head?.state === 'ready';
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
    list.splice(0, list.length, ...pressingCalls, ...otherCalls);
  }
}
