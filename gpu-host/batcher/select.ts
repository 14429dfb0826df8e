import type { BatchCall } from './call.ts';

/** Bounds of one batch, and how long a call waits until it has gained one level of priority. */
export interface BatchLimits {
  /** Maximum forwards, each of them one sequence of the step; also maximum projections, or images. */
  readonly maxCalls: number;
  /** Maximum inputs over all sequences; only a call that cannot be cut exceeds it, and then alone. */
  readonly maxTokens: number;
  /** Maximum tokens whose scores the projections of a batch return, so that the host's thread is soon free again; only a single call exceeds it. */
  readonly maxScores: number;
  /** Milliseconds of waiting that outweigh one level of priority. */
  readonly agingMs: number;
}

export const DEFAULT_LIMITS: BatchLimits = { maxCalls: 128, maxTokens: 512, maxScores: 65_536, agingMs: 250 };

/** Maximum inputs of a short call, such as a decode; less in small batches. A short call is never cut, and goes before long ones. */
const SHORT_TOKENS = 16;

/** Maximum inputs of a call that counts as short: at most a quarter of a batch. */
export function mostShortTokens({ maxTokens }: BatchLimits): number {
  return Math.max(1, Math.min(SHORT_TOKENS, maxTokens >> 2));
}

/** Receives a call, and the number of its inputs that go with the batch. */
type Taker = (call: BatchCall, tokens: number) => void;

/** Bounds of one choice: the calls that may be chosen, and the room for them. */
interface Choice {
  readonly variant: string | undefined;
  readonly limits: BatchLimits;
  /** Maximum inputs of a call that counts as short. */
  readonly short: number;
  /** Inputs that short calls leave to long ones. */
  readonly reserve: number;
  /** Maximum inputs of long calls. */
  readonly longTokens: number;
  /** True when calls of several queues use the device, which then get a step often. */
  readonly isShared: boolean;
  /** Calls that are not to be chosen. */
  readonly except?: ReadonlySet<BatchCall>;
  /** True when the most urgent call stays behind if it does not fit. */
  readonly mustFit: boolean;
}

/**
 * Chooses calls of `variant` for the next batch out of `ready`, which is in order of urgency. Without `pressing` calls, the most urgent call of
 * the variant is always chosen. Each chosen call goes to `take` at once. `take` may append to `ready` the calls that can go now (the next call of
 * the same queue, and calls that follow the taken call in the batch). These calls are considered last.
 *
 * Short calls go first. While a long one waits, they leave it a place and a quarter of the tokens, so that prefill goes on beside
 * decode, and decode keeps its pace. Long calls are cut to the remaining tokens; while several queues have calls (`isShared`, or in `ready`), also to
 * their `besideTokens`.
 *
 * Calls of `pressing` (`LatencyTurns`) go before all others. They leave the others one place, a quarter of the tokens for short calls, and a
 * quarter for long calls. The long calls of the others get no more than their quarter.
 */
export function selectForwards(
  ready: readonly BatchCall[],
  variant: string | undefined,
  limits: BatchLimits,
  take: Taker,
  pressing: ReadonlySet<BatchCall> = NONE,
  isShared = false,
): void {
  const { maxCalls, maxTokens } = limits;
  const quarter = Math.max(1, maxTokens >> 2);
  const short = mostShortTokens(limits);
  const baseChoice = {
    variant,
    limits,
    short,
    reserve: quarter,
    longTokens: maxTokens,
    isShared: isShared || ready.some((call) => call.queue !== ready[0]?.queue),
    mustFit: false,
  };
  const pressingCalls =
    pressing.size === 0 ? [] : ready.filter((call) => call.variant === variant && pressing.has(call));
  if (pressingCalls.length === 0) {
    select(ready, baseChoice, take);
    return;
  }
  let otherCount = 0;
  let shortTokens = 0;
  let longTokens = 0;
  for (const call of ready) {
    if (call.variant !== variant || pressing.has(call)) continue;
    otherCount++;
    if (call.tokens > short) longTokens += call.tokens;
    else shortTokens += call.tokens;
  }
  const reservedTokens = Math.min(quarter, shortTokens) + Math.min(quarter, longTokens);
  let remainingLimits: BatchLimits = limits;
  const pressingLimits = {
    ...limits,
    maxCalls: Math.max(1, maxCalls - Math.min(1, otherCount)),
    maxTokens: Math.max(1, maxTokens - reservedTokens),
  };
  // The reserve for long pressing calls leaves at least one input to short ones.
  select(
    pressingCalls,
    { ...baseChoice, limits: pressingLimits, reserve: Math.min(quarter, pressingLimits.maxTokens - 1) },
    (call, count) => {
      remainingLimits = {
        ...remainingLimits,
        maxCalls: remainingLimits.maxCalls - 1,
        maxTokens: remainingLimits.maxTokens - count,
      };
      take(call, count);
    },
  );
  if (remainingLimits.maxCalls <= 0 || remainingLimits.maxTokens <= 0) return;
  select(ready, { ...baseChoice, limits: remainingLimits, longTokens: quarter, except: pressing, mustFit: true }, take);
}

const NONE: ReadonlySet<BatchCall> = new Set();

function select(ready: readonly BatchCall[], choice: Choice, take: Taker): void {
  const { variant, limits, short, reserve, except, mustFit } = choice;
  const isCandidate = (call: BatchCall): boolean => call.variant === variant && !except?.has(call);
  const mostUrgent = ready.find(isCandidate);
  if (!mostUrgent) return;
  const { maxCalls, maxTokens } = limits;
  let calls = 0;
  let tokens = 0;
  const grant = (call: BatchCall, count: number): void => {
    calls++;
    tokens += count;
    take(call, count);
  };
  const initialLength = ready.length;
  let longsLeft = 0;
  const isTooLong = (call: BatchCall): boolean => call.tokens > call.stepTokens && call.chunkable();
  for (const call of ready) if (isCandidate(call) && (call.tokens > short || isTooLong(call))) longsLeft++;
  // The variant's most urgent call always goes. If it is long and cannot be cut, it goes before short ones take its room.
  const firstGoesWhole = !mustFit && mostUrgent.tokens > short && !mostUrgent.chunkable();
  if (firstGoesWhole) {
    longsLeft--;
    grant(mostUrgent, mostUrgent.tokens);
  }
  const longs: BatchCall[] = [];
  let nextLong = 0;
  let longRoom = choice.longTokens;
  // Take all short calls that are ready by now, then one long call, and repeat: each taken call may make further calls ready.
  for (let index = 0; ; ) {
    for (; index < ready.length; index++) {
      const call = ready[index] as BatchCall;
      if (!isCandidate(call) || (firstGoesWhole && call === mostUrgent)) continue;
      if (call.tokens > short || isTooLong(call)) {
        longs.push(call);
        if (index >= initialLength) longsLeft++;
        continue;
      }
      const callRoom = maxCalls - calls - (longsLeft > 0 ? 1 : 0);
      const tokenRoom = maxTokens - tokens - (longsLeft > 0 ? reserve : 0);
      const goesAnyway = call === mostUrgent && (!mustFit || call.tokens <= maxTokens);
      if ((callRoom > 0 && call.tokens <= tokenRoom) || goesAnyway) grant(call, call.tokens);
    }
    const call = longs[nextLong++];
    if (!call) return;
    longsLeft--;
    const remainingTokens = Math.min(maxTokens - tokens, longRoom);
    if (calls >= maxCalls || remainingTokens <= 0) return;
    let count = Math.min(call.tokens, remainingTokens);
    const most = choice.isShared ? call.besideTokens : call.stepTokens;
    if (most < count && call.chunkable()) count = most;
    if (count < call.tokens && !mayCut(call)) continue;
    longRoom -= count;
    grant(call, count);
  }
}

/** A call that follows others of the same batch is not cut: its keys get their slots only after the keys of the followed calls. */
function mayCut(call: BatchCall): boolean {
  return !call.links?.follows && call.chunkable();
}

/** Calls of one kind that go into the batch under construction: as many as fit, and at least one. */
export class BatchRoom {
  readonly calls: BatchCall[] = [];
  readonly #maxCalls: number;
  readonly #sizeOf: (call: BatchCall) => number;
  #remainingSize: number;

  /** @param maxSize sum of all calls' sizes; only a single call may exceed it */
  constructor(maxCalls: number, maxSize: number, sizeOf: (call: BatchCall) => number) {
    this.#maxCalls = maxCalls;
    this.#remainingSize = maxSize;
    this.#sizeOf = sizeOf;
  }

  /** Takes the call, or returns false when it does not fit. */
  take(call: BatchCall): boolean {
    const size = this.#sizeOf(call);
    if (this.calls.length > 0 && (this.calls.length >= this.#maxCalls || size > this.#remainingSize)) return false;
    this.#remainingSize -= size;
    this.calls.push(call);
    return true;
  }
}

/** Room for images, counted in inputs. An image cannot be cut, so one that exceeds the limit goes alone. */
export function roomForEncodings({ maxCalls, maxTokens }: BatchLimits): BatchRoom {
  return new BatchRoom(maxCalls, maxTokens, ({ tokens }) => tokens);
}

export function roomForProjections({ maxCalls, maxScores }: BatchLimits): BatchRoom {
  return new BatchRoom(maxCalls, maxScores, ({ scores }) => scores);
}
