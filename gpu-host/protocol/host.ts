import type { Vitals } from '#infra/telemetry/vitals.ts';

/** Bounds of the waits that `ModelStats.waitCounts` tells apart, milliseconds. */
export const BATCH_WAIT_BOUNDS_MS = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 1000];

/** What computes a model, and in which form. */
export interface ModelCompute {
  readonly backend: string;
  /** Of the weights, such as `bf16`. */
  readonly precision: string;
  /** Of keys and values, where it is another one. */
  readonly kv?: string;
  readonly device: DeviceSummary;
}

export interface DeviceSummary {
  /** The card's, or `CPU`. */
  readonly name: string;
  /** Which of several, as the driver counts them. */
  readonly index?: number;
  /** Of its memory what the model takes, adapters apart, and all that there is; not told of a CPU. */
  readonly memory?: { readonly takenBytes: number; readonly totalBytes: number };
}

/** What the hello says of one model. */
export interface ModelSummary extends ModelCompute {
  readonly name: string;
  /** Tokens that the model was trained to see at once; positions past it are refused. */
  readonly contextLength: number;
  readonly vocabularySize: number;
  /** Slots of one KV page. */
  readonly pageSize: number;
  /** Pages of the whole pool. */
  readonly pageCount: number;
  /** Names of the WIT interfaces that the model offers. */
  readonly traits: readonly string[];
  /** Hugging Face directory on the host's machine, for the tokenizer. */
  readonly directory: string;
  /** Largest `topK` of a distribution. */
  readonly maxTopK: number;
  /** Bits of a weight as the device holds it. */
  readonly bits: number;
}

/** The host's part of the hello frame. */
export interface HostHello {
  readonly models: readonly ModelSummary[];
  /** Random, one for each life of the host's process: it tells runtimes on any machine whether they share a host. */
  readonly hostId: string;
  /** Process id, so that a reader of logs and tests can tell one life of the host from the next. */
  readonly processId: number;
}

/** Pages of one model's pool: free + cached + owned = total, always. */
export interface PageStats {
  readonly free: number;
  /** Held by nobody but kept for their content (prefix cache). */
  readonly cached: number;
  /** Held by at least one inferlet; a shared page counts once. */
  readonly owned: number;
  readonly total: number;
}

/** What the prefix cache saved since the start (a reset leaves it alone): tokens asked of it, and which of them it gave. */
export interface PrefixStats {
  readonly lookups: number;
  readonly hitTokens: number;
  readonly missTokens: number;
  /** Pages that left the cache for others. */
  readonly evictions: number;
}

/** One model's counters since the start or the last reset. */
export interface ModelStats extends ModelCompute {
  readonly name: string;
  readonly pages: PageStats;
  /** Pages whose content is in the swap store, and in no frame of the pool. */
  readonly swappedOutPages: number;
  /** Owned pages that would go to the swap store when others need room, as far as that has any; about. */
  readonly idlePages: number;
  readonly prefix: PrefixStats;
  /** Pages moved to the swap store, and back. */
  readonly swapsOut: number;
  readonly swapsIn: number;
  /** Inferlets ended to take their memory. */
  readonly terminations: number;
  /** Names in the registry: exports and files. */
  readonly exports: number;
  readonly inferlets: number;
  readonly queues: number;
  /** Calls that wait for the device now. */
  readonly waitingCalls: number;
  /** Device steps. */
  readonly batches: number;
  /** Those of them that were handed over while the one before was computed. */
  readonly stepsAhead: number;
  /** Mean of sequences per batch; 0 without batches. */
  readonly meanBatchSize: number;
  /** `batchSizes[n]` batches had n sequences; the last entry holds all larger ones. */
  readonly batchSizes: readonly number[];
  /** Inputs computed (prefill and decode). */
  readonly tokens: number;
  /** Tokens of sequences with one input. */
  readonly decodeTokens: number;
  /** Pictures encoded. */
  readonly images: number;
  /** Calls that failed. */
  readonly failedCalls: number;
  /** Milliseconds that the device was computing. */
  readonly deviceBusyMs: number;
  /** Milliseconds per batch on the device, mean. */
  readonly meanStepMs: number;
  /** Milliseconds that a free device waited for queues which had just got results. */
  readonly graceMs: number;
  /** How long calls waited for their batches: `waitCounts[i]` up to `BATCH_WAIT_BOUNDS_MS[i]`, the last longer; and all of it, milliseconds. */
  readonly waitCounts: readonly number[];
  readonly waitMs: number;
  /** Share of the computed input × key work that was padding, 0 to 1; 0 for a backend that does not pad. */
  readonly paddingShare: number;
  /** Times that the driver has refused a graph of a step since the start: such steps are slower. 0 for a backend without graphs. */
  readonly graphsRefused: number;
}

/** Share of a model's device steps that were handed over ahead. */
export function aheadShare({ stepsAhead, batches }: Pick<ModelStats, 'stepsAhead' | 'batches'>): number {
  return batches === 0 ? 0 : stepsAhead / batches;
}

export interface StatsOptions {
  /** Counters start anew after reading. */
  readonly reset?: boolean;
  /** All but the models is left out. */
  readonly modelsOnly?: boolean;
}

export interface GpuHostStats {
  /** Since the start or the last reset. */
  readonly elapsedMs: number;
  readonly connections: number;
  readonly models: readonly ModelStats[];
  /** Those that hold most pages first; at most 1,000. Empty when only the models were asked for. */
  readonly tenants: readonly TenantPageStats[];
  /** How the process is; absent when nobody watches it, or only the models were asked for. */
  readonly vitals?: Vitals;
}

/** What one tenant holds on this host: inferlets, exports and KV files, on all models. */
export interface TenantPageStats {
  readonly tenant: string;
  /** Distinct pages, resident or not: what several of them share counts once. */
  readonly pages: number;
  /** Null when it has no limit. */
  readonly maxPages: number | null;
}
