import { mean, quantile } from '../statistics.ts';
import { CHUNK_TOKENS, INPUT_MS, STEP_MS, type Trace, type TracedInvocation, tokensToCompute } from './trace.ts';

/** Lower bounds of the latencies of any policy, ms, even of one that starts invocations in another order. */
export interface Bound {
  readonly meanMs: number;
  readonly p99Ms: number;
}

/**
 * Combines two lower bounds, "alone" and "shared". `meanMs` is the larger one; `p99Ms` is that of "alone", because "shared" bounds only a mean.
 *
 * "Alone": each invocation has the fastest host to itself, and finds there as much of its context as earlier invocations may have left.
 *
 * "Shared": one machine does the work of all hosts, the shortest remaining work first. No other order of the same work has a lower mean (Schrage,
 * 1968). An invocation's work in a step is that of its inputs, plus a share of the step's fixed time in proportion to the invocation's pages.
 */
export function boundOf(trace: Trace): Bound {
  const alone = trace.invocations.map(aloneMsOn(trace));
  const shared = sharedFlowMs(trace);
  return { meanMs: Math.max(mean(alone), shared), p99Ms: quantile(alone, 0.99) };
}

/** Work of an invocation as the bound "shared" counts it, in ms of a host of speed 1. */
export function workOf(trace: Pick<Trace, 'hosts'>, invocation: TracedInvocation, known: number): number {
  const compute = tokensToCompute(invocation, known);
  const mostPages = Math.max(...trace.hosts.map(({ pages }) => pages));
  const steps = compute / CHUNK_TOKENS + invocation.output;
  return INPUT_MS * (compute + invocation.output) + STEP_MS * steps * Math.min(1, invocation.pages / mostPages);
}

function aloneMsOn({ hosts, changes }: Trace): (invocation: TracedInvocation) => number {
  const fastest = Math.max(...hosts.map(({ speed }) => speed));
  const knownTokens = bestContexts(changes);
  return (invocation) => {
    const compute = tokensToCompute(invocation, knownTokens(invocation));
    const promptMs = (compute / CHUNK_TOKENS) * (STEP_MS + INPUT_MS * CHUNK_TOKENS);
    return (promptMs + invocation.output * (STEP_MS + INPUT_MS)) / fastest;
  };
}

/**
 * Returns a function that takes the invocations one after another, in order of arrival. For each, it returns the number
 * of tokens of the invocation's context that earlier invocations may have left on a host.
 */
export function earlierContexts(): (invocation: TracedInvocation) => number {
  const tokensByContext = new Map<string, number>();
  return ({ context }) => {
    if (context === undefined) return 0;
    const known = tokensByContext.get(context.name) ?? 0;
    tokensByContext.set(context.name, Math.max(known, context.tokens, context.keeps));
    return known;
  };
}

/** An invocation that runs again after a crash may find its own context, so any context may be there in full. */
function bestContexts(changes: Trace['changes']): (invocation: TracedInvocation) => number {
  if (changes.some(({ kind }) => kind === 'crash')) return ({ context }) => context?.tokens ?? 0;
  return earlierContexts();
}

/** Mean time from arrival to end on one preemptive machine with the speed of all hosts. */
function sharedFlowMs(trace: Trace): number {
  const speed = trace.hosts.reduce((sum, host) => sum + host.speed, 0);
  const knownTokens = bestContexts(trace.changes);
  const remainingWork = new Heap();
  let [nowMs, flowMs] = [0, 0];
  const workUntil = (untilMs: number) => {
    for (let least = remainingWork.least; least !== undefined && nowMs < untilMs; least = remainingWork.least) {
      const endMs = nowMs + least / speed;
      const stepMs = Math.min(endMs, untilMs) - nowMs;
      flowMs += stepMs * remainingWork.size;
      nowMs += stepMs;
      remainingWork.pop();
      if (endMs > untilMs) remainingWork.push(least - stepMs * speed);
    }
    // Without work, the clock goes on to the next arrival. After the last arrival, `untilMs` is infinite, and the clock stays.
    if (untilMs !== Number.POSITIVE_INFINITY) nowMs = Math.max(nowMs, untilMs);
  };
  for (const invocation of trace.invocations) {
    workUntil(invocation.atMs);
    remainingWork.push(workOf(trace, invocation, knownTokens(invocation)));
  }
  workUntil(Number.POSITIVE_INFINITY);
  return flowMs / trace.invocations.length;
}

/** A binary heap of numbers. */
class Heap {
  readonly #values: number[] = [];

  get size(): number {
    return this.#values.length;
  }

  get least(): number | undefined {
    return this.#values[0];
  }

  push(value: number): void {
    let at = this.#values.push(value) - 1;
    for (let parent = (at - 1) >> 1; at > 0 && this.#at(parent) > value; parent = (at - 1) >> 1) {
      this.#values[at] = this.#at(parent);
      at = parent;
    }
    this.#values[at] = value;
  }

  pop(): void {
    const value = this.#values.pop();
    if (value === undefined || this.#values.length === 0) return;
    let at = 0;
    for (;;) {
      const left = 2 * at + 1;
      const child = this.#at(left + 1) < this.#at(left) ? left + 1 : left;
      if (this.#at(child) >= value) break;
      this.#values[at] = this.#at(child);
      at = child;
    }
    this.#values[at] = value;
  }

  #at(index: number): number {
    return this.#values[index] ?? Number.POSITIVE_INFINITY;
  }
}
