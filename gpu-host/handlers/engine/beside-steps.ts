import { ImageCache } from '../../memory/embeds.ts';
import { deviceError, type HostCall, type ModelContext } from '../calls/call.ts';
import type { EmbedImageCall } from '../calls/embed-image.ts';
import { DistributionCall, type ProjectCall, ScoreCall } from '../calls/forward.ts';
import type { Payer } from '../sharing/meter.ts';
import type { StepStats } from './stats.ts';

/** The engine, as the work of a call sees it. */
export interface CallEnds {
  /** Runs `action` for a call. When it throws, fails or holds the call and returns false. */
  attempt(call: HostCall, action: () => void): boolean;
  /** Ends a call that is complete. */
  finish(call: HostCall): void;
  /** Ends a call that failed with this error. */
  fail(call: HostCall, error: unknown): void;
}

/** The work of a batch on the device besides its steps: it encodes images before the steps, and projects states after them. */
export class BesideSteps {
  readonly #context: ModelContext;
  readonly #stats: StepStats;
  readonly #engine: CallEnds;

  constructor(context: ModelContext, stats: StepStats, engine: CallEnds) {
    this.#context = context;
    this.#stats = stats;
    this.#engine = engine;
  }

  /** Computes projections that no step has answered. */
  async project(calls: readonly ProjectCall[]): Promise<void> {
    const distributions = calls.filter((call) => call instanceof DistributionCall);
    const scores = calls.filter((call) => call instanceof ScoreCall);
    // Without this, the queue of a third kind of projection would wait for ever.
    if (distributions.length + scores.length < calls.length) throw new Error('a projection has an unknown kind');
    await this.#distributions(distributions);
    await this.#scores(scores);
  }

  async #distributions(calls: readonly DistributionCall[]): Promise<void> {
    const topK = calls.reduce((maxTopK, call) => Math.max(maxTopK, call.topK), 1);
    await this.#project(
      calls,
      (states, ready) => this.#context.backend.project(states, ready.length, topK),
      (call, top, row) => call.accept(top, row),
    );
  }

  async #scores(calls: readonly ScoreCall[]): Promise<void> {
    await this.#project(
      calls,
      (states, ready) => {
        const tokens = ready.map((call) => call.scoredTokens);
        return this.#context.backend.score(states, ready.length, tokens);
      },
      (call, scores, row) => call.accept(scores, row),
    );
  }

  /** Encodes images. An image that the tenant had encoded before, or that several of its calls contain, is computed once. */
  async encode(calls: readonly EmbedImageCall[]): Promise<void> {
    const { backend, imageCache } = this.#context;
    const ready: { readonly call: EmbedImageCall; readonly id: string }[] = [];
    const encodedById = new Map<string, Float32Array>();
    const missingById = new Map<
      string,
      { readonly call: EmbedImageCall; readonly key: string; readonly pixels: Uint8Array }
    >();
    for (const call of calls) {
      this.#engine.attempt(call, () => {
        const pixels = call.prepare();
        const key = ImageCache.keyOf(pixels);
        const { tenant } = call.hostQueue.space.owner;
        const id = `${key} ${tenant}`;
        const cached = imageCache.get(tenant, key);
        if (cached) encodedById.set(id, cached);
        else if (!missingById.has(id)) missingById.set(id, { call, key, pixels });
        ready.push({ call, id });
      });
    }
    const { images } = backend;
    if (!images || ready.length === 0) return;
    if (missingById.size > 0) {
      const payers = [...missingById.values()].map(({ call }) => call);
      const pixels = [...missingById.values()].map((each) => each.pixels);
      try {
        const encoded = await this.#runCharged(payers, tokensOf, payerOf, () => images.encode(pixels));
        for (const [i, [id, { call, key }]] of [...missingById].entries()) {
          const values = encoded[i] as Float32Array;
          encodedById.set(id, values);
          imageCache.put(call.hostQueue.space.owner.tenant, key, values);
        }
        this.#stats.images += missingById.size;
      } catch (error) {
        for (const { call, id } of ready) if (missingById.has(id)) this.#engine.fail(call, deviceError(error));
      }
    }
    for (const { call, id } of ready) {
      const values = encodedById.get(id);
      if (!values) continue;
      if (missingById.get(id)?.call !== call) this.#stats.imageHits++;
      this.#engine.attempt(call, () => {
        if (!call.hostQueue.space.closed) call.accept(values);
        this.#engine.finish(call);
      });
    }
  }

  /** Computes `compute` over the calls' states in one go, and gives each call its row. */
  async #project<C extends ProjectCall, R>(
    calls: readonly C[],
    compute: (states: Float32Array, ready: readonly C[]) => Promise<R>,
    accept: (call: C, result: R, row: number) => void,
  ): Promise<void> {
    const ready: C[] = [];
    const states: Float32Array[] = [];
    for (const call of calls) {
      this.#engine.attempt(call, () => {
        states.push(call.input());
        ready.push(call);
      });
    }
    if (ready.length === 0) return;
    const { hiddenSize } = this.#context.backend.config;
    const rows = new Float32Array(ready.length * hiddenSize);
    for (const [i, state] of states.entries()) rows.set(state, i * hiddenSize);
    let result: R;
    try {
      result = await this.#runCharged(ready, tokensOf, payerOf, () => compute(rows, ready));
    } catch (error) {
      for (const call of ready) this.#engine.fail(call, deviceError(error));
      return;
    }
    this.#stats.projections += ready.length;
    for (const [row, call] of ready.entries()) {
      this.#engine.attempt(call, () => {
        accept(call, result, row);
        this.#engine.finish(call);
      });
    }
  }

  /** Runs device work and charges it to the parts' inferlets, even when it fails or they have ended meanwhile. */
  async #runCharged<P, R>(
    parts: readonly P[],
    tokens: (part: P) => number,
    payer: (part: P) => Payer,
    work: () => Promise<R>,
  ): Promise<R> {
    const startedMs = performance.now();
    try {
      return await work();
    } finally {
      this.#stats.time.spend(performance.now() - startedMs, parts, tokens, payer);
    }
  }
}

const tokensOf = ({ tokens }: HostCall): number => tokens;
const payerOf = ({ hostQueue }: HostCall): Payer => hostQueue.space.port.meter;
