import {
  CHUNK_TOKENS,
  type Context,
  type HostShape,
  INPUT_MS,
  PAGE_TOKENS,
  STEP_MS,
  type TracedInvocation,
  tokensToCompute,
} from './trace.ts';

/** An invocation that runs. `prefilledAt` and `endAt`, its milestones, are numbers of the host's steps. */
export interface RunningInvocation {
  readonly invocation: TracedInvocation;
  readonly startMs: number;
  readonly prefilledAt: number;
  readonly endAt: number;
  prefilled: boolean;
}

/**
 * A GPU host with continuous batching, simulated as a fluid: steps count in fractions, and the time of a step grows with its inputs. The pages of
 * an invocation are reserved until its end. Contexts that no running invocation uses fill the free pages; the least recently used is evicted first.
 */
export class SimulatedHost {
  readonly shape: HostShape;
  readonly running: RunningInvocation[] = [];
  /** Pages of the running invocations. */
  reservedPages = 0;
  /** Time integral of the share of the host's pages that is reserved, ms. */
  reservedMs = 0;
  /** Tokens of contexts that the host already had when an invocation started. */
  hitTokens = 0;
  /** Tokens of the contexts of all invocations that have started. */
  contextTokens = 0;
  /** Time of the next milestone; infinite when nothing runs. */
  nextMs = Number.POSITIVE_INFINITY;
  #prefillingCount = 0;
  #stepsDone = 0;
  #atMs = 0;
  readonly #contexts = new Map<string, { tokens: number; users: number; exported: boolean }>();
  /** Pages of contexts that no running invocation uses and that are not exports. */
  #cachedPages = 0;

  constructor(shape: HostShape) {
    this.shape = shape;
  }

  /** Time of a step, ms, with this many more prompts and decoding sequences than now. */
  stepMs(prompts = 0, sequences = 0): number {
    const prefilling = this.#prefillingCount + prompts;
    const decoding = this.running.length - this.#prefillingCount + sequences;
    return (STEP_MS + INPUT_MS * (CHUNK_TOKENS * prefilling + decoding)) / this.shape.speed;
  }

  hasRoom({ pages }: TracedInvocation): boolean {
    return this.running.length === 0 || this.reservedPages + pages <= this.shape.pages;
  }

  /** Tokens that the host has of an invocation's context. */
  knownTokens({ context }: TracedInvocation): number {
    return context === undefined ? 0 : (this.#contexts.get(context.name)?.tokens ?? 0);
  }

  /** Steps that a running invocation still takes. */
  stepsLeft({ endAt }: RunningInvocation): number {
    return endAt - this.#stepsDone;
  }

  start(invocation: TracedInvocation, nowMs: number): void {
    this.#advance(nowMs);
    const compute = tokensToCompute(invocation, this.knownTokens(invocation));
    this.contextTokens += invocation.context?.tokens ?? 0;
    this.hitTokens += invocation.context === undefined ? 0 : Math.max(0, invocation.prompt - compute);
    const prefilledAt = this.#stepsDone + compute / CHUNK_TOKENS;
    const endAt = prefilledAt + invocation.output;
    this.running.push({ invocation, startMs: nowMs, prefilledAt, endAt, prefilled: false });
    this.#prefillingCount++;
    this.reservedPages += invocation.pages;
    if (invocation.context) this.#use(invocation.context);
    this.#evict();
    this.#updateNextMs();
  }

  /** Passes the next milestone and returns its invocation. The invocation's prompt is now computed, or it has ended and left `running`. */
  pass(nowMs: number): RunningInvocation {
    const next = this.#next();
    if (next === undefined) throw new Error('Nothing runs on the host.');
    this.#advance(nowMs);
    this.#stepsDone = milestone(next);
    if (next.prefilled) this.#remove(next);
    else {
      next.prefilled = true;
      this.#prefillingCount--;
    }
    this.#updateNextMs();
    return next;
  }

  /** Loses its memory and everything that runs, and returns what ran. Exports are files, and stay. */
  crash(nowMs: number): TracedInvocation[] {
    this.#advance(nowMs);
    const lost = this.running.splice(0).map(({ invocation }) => invocation);
    this.reservedPages = 0;
    this.#prefillingCount = 0;
    this.#cachedPages = 0;
    for (const [name, context] of this.#contexts) {
      context.users = 0;
      if (!context.exported) this.#contexts.delete(name);
    }
    this.#updateNextMs();
    return lost;
  }

  #next(): RunningInvocation | undefined {
    let next: RunningInvocation | undefined;
    for (const each of this.running) if (next === undefined || milestone(each) < milestone(next)) next = each;
    return next;
  }

  #updateNextMs(): void {
    const next = this.#next();
    this.nextMs =
      next === undefined ? Number.POSITIVE_INFINITY : this.#atMs + (milestone(next) - this.#stepsDone) * this.stepMs();
  }

  #advance(nowMs: number): void {
    this.#stepsDone += (nowMs - this.#atMs) / this.stepMs();
    this.reservedMs += ((nowMs - this.#atMs) * this.reservedPages) / this.shape.pages;
    this.#atMs = nowMs;
  }

  #remove(ended: RunningInvocation): void {
    const { invocation } = ended;
    this.running.splice(this.running.indexOf(ended), 1);
    this.reservedPages -= invocation.pages;
    if (invocation.context) this.#release(invocation.context);
    this.#evict();
  }

  /** Prompts that come together compute a shared context once, so the host counts as having it from the first start on. */
  #use({ name, tokens }: Context): void {
    const known = this.#contexts.get(name) ?? { tokens: 0, users: 0, exported: false };
    if (known.users === 0 && !known.exported) this.#cachedPages -= pagesOf(known.tokens);
    this.#contexts.delete(name);
    this.#contexts.set(name, { ...known, tokens: Math.max(known.tokens, tokens), users: known.users + 1 });
  }

  #release({ name, keeps, exported }: Context): void {
    const known = this.#contexts.get(name);
    if (known === undefined) return;
    known.tokens = Math.max(known.tokens, keeps);
    known.exported ||= exported;
    known.users--;
    if (known.users === 0 && !known.exported) this.#cachedPages += pagesOf(known.tokens);
  }

  #evict(): void {
    for (const [name, { tokens, users, exported }] of this.#contexts) {
      if (this.#cachedPages <= this.shape.pages - this.reservedPages) return;
      if (users > 0 || exported) continue;
      this.#contexts.delete(name);
      this.#cachedPages -= pagesOf(tokens);
    }
  }
}

const milestone = ({ prefilled, prefilledAt, endAt }: RunningInvocation): number => (prefilled ? endAt : prefilledAt);

const pagesOf = (tokens: number): number => Math.ceil(tokens / PAGE_TOKENS);
