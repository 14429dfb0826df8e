import type { GpuHostStats, ModelStats, StatsOptions } from '#gpu-host/protocol/client.ts';
import type { ModelLoad } from '#scheduler/runtimes/types.ts';

/** A GPU host, as its load is read. */
export interface LoadSource {
  readonly hostId: string | undefined;
  stats(options: StatsOptions): Promise<GpuHostStats>;
}

/** Shortest time between two questions. */
const INTERVAL_MS = 1000;

/** What the GPU hosts of a runtime did of late: their counters are read once a second while somebody asks, and told as differences. */
export class ModelLoads {
  readonly #sources: readonly LoadSource[];
  readonly #now: () => number;
  readonly #last = new Map<LoadSource, { readonly hostId: string; readonly stats: GpuHostStats }>();
  readonly #loads = new Map<LoadSource, readonly ModelLoad[]>();
  #askedAtMs = Number.NEGATIVE_INFINITY;

  constructor(sources: readonly LoadSource[], now: () => number = () => performance.now()) {
    this.#sources = sources;
    this.#now = now;
  }

  /** As of the last answers; undefined before the first. Asks again when they are a second old. */
  get current(): readonly ModelLoad[] | undefined {
    const nowMs = this.#now();
    if (nowMs - this.#askedAtMs >= INTERVAL_MS) {
      this.#askedAtMs = nowMs;
      void this.refresh();
    }
    return this.#loads.size === 0 ? undefined : [...this.#loads.values()].flat();
  }

  async refresh(): Promise<void> {
    await Promise.all(this.#sources.map((source) => this.#ask(source)));
  }

  async #ask(source: LoadSource): Promise<void> {
    const { hostId } = source;
    const readAt = Date.now();
    try {
      const stats = await source.stats({ modelsOnly: true });
      if (hostId === undefined || source.hostId !== hostId) return;
      const last = this.#last.get(source);
      this.#last.set(source, { hostId, stats });
      this.#loads.set(source, loadsOf(hostId, readAt, stats, last?.hostId === hostId ? last.stats : undefined));
    } catch {
      // It is away: nothing is known of it until it answers again.
      this.#last.delete(source);
      this.#loads.delete(source);
    }
  }
}

/** What a host did between two readings of its counters; all that it ever did without the earlier one, or when that was reset since. */
export function loadsOf(hostId: string, readAt: number, stats: GpuHostStats, before?: GpuHostStats): ModelLoad[] {
  const since = before && before.elapsedMs <= stats.elapsedMs ? before : undefined;
  const elapsedMs = stats.elapsedMs - (since?.elapsedMs ?? 0);
  return stats.models.map((model) => {
    const earlier = since?.models.find(({ name }) => name === model.name);
    const change = (of: (model: ModelStats) => number): number => Math.max(0, of(model) - (earlier ? of(earlier) : 0));
    const batches = change((one) => one.batches);
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
        batches,
      ),
      utilisation: Math.min(
        1,
        ratio(
          change((one) => one.deviceBusyMs),
          elapsedMs,
        ),
      ),
      hitRate: ratio(hitTokens, askedTokens),
      tokensPerSecond: ratio(change((one) => one.tokens) * 1000, elapsedMs),
      waitingCalls: model.waitingCalls,
      terminations: model.terminations,
    };
  });
}

/** 0 of nothing; three digits after the point. */
function ratio(part: number, whole: number): number {
  return whole > 0 ? Math.round((part / whole) * 1000) / 1000 : 0;
}
