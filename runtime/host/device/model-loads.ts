import type { GpuHostStats, StatsOptions, StepTimes } from '#gpu-host/protocol/client.ts';
import type { EncoderLoad, ModelLoad } from '#scheduler/runtimes/types.ts';

/** The part of a GPU host's connection that its load is read from. */
export interface LoadSource {
  readonly hostId: string | undefined;
  stats(options: StatsOptions): Promise<GpuHostStats>;
}

/** Load of GPU hosts. */
export interface HostLoads {
  readonly models: readonly ModelLoad[];
  readonly encoders: readonly EncoderLoad[];
}

/** Shortest time between two reads of the counters. */
const INTERVAL_MS = 1000;

/** Recent load of a runtime's GPU hosts. Reads their counters at most once a second, on demand, and returns their changes. */
export class ModelLoads {
  readonly #hosts: { readonly list: readonly LoadSource[] };
  readonly #clock: () => number;
  readonly #now: () => number;
  readonly #lastStats = new Map<LoadSource, { readonly hostId: string; readonly stats: GpuHostStats }>();
  readonly #loads = new Map<LoadSource, HostLoads>();
  #askedAtMs = Number.NEGATIVE_INFINITY;

  /**
   * @param clock the platform's clock: admission compares the times of readings with those of claims
   * @param now monotonic time, ms
   */
  constructor(
    hosts: { readonly list: readonly LoadSource[] },
    clock: () => number,
    now: () => number = () => performance.now(),
  ) {
    this.#hosts = hosts;
    this.#clock = clock;
    this.#now = now;
  }

  /** The loads by the last reading; undefined before the first. Starts a new reading when the last is a second old. */
  get current(): HostLoads | undefined {
    const nowMs = this.#now();
    if (nowMs - this.#askedAtMs >= INTERVAL_MS) {
      this.#askedAtMs = nowMs;
      void this.refresh();
    }
    if (this.#loads.size === 0) return undefined;
    const all = [...this.#loads.values()];
    return { models: all.flatMap(({ models }) => models), encoders: all.flatMap(({ encoders }) => encoders) };
  }

  /** Reads the counters of all hosts, and forgets hosts that were removed. */
  async refresh(): Promise<void> {
    const { list } = this.#hosts;
    for (const removedSource of [...this.#loads.keys()].filter((source) => !list.includes(source)))
      this.#forget(removedSource);
    await Promise.all(list.map((source) => this.#ask(source)));
  }

  async #ask(source: LoadSource): Promise<void> {
    const { hostId } = source;
    const readAt = this.#clock();
    try {
      const stats = await source.stats({ modelsOnly: true });
      // The host's process has changed during the reading: the counters may not be those of `hostId`.
      if (hostId === undefined || source.hostId !== hostId) return;
      const previous = this.#lastStats.get(source);
      this.#lastStats.set(source, { hostId, stats });
      this.#loads.set(source, loadsOf(hostId, readAt, stats, previous?.hostId === hostId ? previous.stats : undefined));
    } catch {
      // The host is away: its load is unknown until it answers again.
      this.#forget(source);
    }
  }

  #forget(source: LoadSource): void {
    this.#lastStats.delete(source);
    this.#loads.delete(source);
  }
}

/** A host's load between two readings of its counters. Without `before`, or if the counters were reset since, the load since they were 0. */
export function loadsOf(hostId: string, readAt: number, stats: GpuHostStats, before?: GpuHostStats): HostLoads {
  const baseline = before && before.elapsedMs <= stats.elapsedMs ? before : undefined;
  const elapsedMs = stats.elapsedMs - (baseline?.elapsedMs ?? 0);
  const models = stats.models.map((model): ModelLoad => {
    const change = changeOf(model, baseline?.models);
    const hitTokens = change(({ prefix }) => prefix.hitTokens);
    const askedTokens = hitTokens + change(({ prefix }) => prefix.missTokens);
    return {
      model: model.name,
      hostId,
      pages: model.pages.total,
      freePages: model.pages.free,
      cachedPages: model.pages.cached,
      idlePages: model.idlePages,
      readAt,
      batchSize: ratio(
        change((one) => one.batches * one.meanBatchSize),
        change((one) => one.batches),
      ),
      utilisation: boundedRatio(
        change((one) => one.deviceBusyMs),
        elapsedMs,
      ),
      hitRate: ratio(hitTokens, askedTokens),
      tokensPerSecond: ratio(change((one) => one.tokens) * 1000, elapsedMs),
      ...(model.efficientTokens !== undefined && { efficientTokens: model.efficientTokens }),
      ...(model.stepTimes && { stepTimes: rounded(model.stepTimes) }),
      waitingCalls: model.waitingCalls,
      terminations: model.terminations,
    };
  });
  const encoders = stats.encoders.map((encoder): EncoderLoad => {
    const change = changeOf(encoder, baseline?.encoders);
    const { name, index } = encoder.device;
    const texts = change((one) => one.texts);
    return {
      encoder: encoder.name,
      kind: encoder.kind,
      hostId,
      device: { name, ...(index !== undefined && { index }) },
      batchSize: ratio(
        texts,
        change((one) => one.batches),
      ),
      utilisation: boundedRatio(
        change((one) => one.deviceBusyMs),
        elapsedMs,
      ),
      textsPerSecond: ratio(texts * 1000, elapsedMs),
      tokensPerSecond: ratio(change((one) => one.tokens) * 1000, elapsedMs),
      waitingCalls: encoder.waitingCalls,
      maxBatchTokens: encoder.maxBatchTokens,
      latency: encoder.latency,
    };
  });
  return { models, encoders };
}

/** Step times with three decimals: a runtime writes them every second. */
function rounded({ tokens, sequences }: StepTimes): StepTimes {
  const points = (of: StepTimes['tokens']) => of.map(({ size, ms }) => ({ size: ratio(size, 1), ms: ratio(ms, 1) }));
  return { tokens: points(tokens), sequences: points(sequences) };
}

/** Returns a function that tells how much a counter of `now` has grown since the earlier reading. */
function changeOf<S extends { readonly name: string }>(now: S, before: readonly S[] = []) {
  const earlier = before.find(({ name }) => name === now.name);
  return (of: (stats: S) => number): number => Math.max(0, of(now) - (earlier ? of(earlier) : 0));
}

const boundedRatio = (part: number, whole: number): number => Math.min(1, ratio(part, whole));

/** The quotient, rounded to three decimals; 0 when `whole` is 0. */
function ratio(part: number, whole: number): number {
  return whole > 0 ? Math.round((part / whole) * 1000) / 1000 : 0;
}
