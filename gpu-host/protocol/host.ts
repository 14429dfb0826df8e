import type { Vitals } from '#infra/telemetry/vitals.ts';
import type { EncoderInfo, ModelInfo } from '#wit/generated/host.ts';

/** Bounds of the histogram `ModelStats.waitCounts`, milliseconds. */
export const BATCH_WAIT_BOUNDS_MS = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 1000];

/** Backend, precision and device of a model. */
export interface ModelCompute {
  readonly backend: string;
  /** Precision of the weights, such as `bf16`. */
  readonly precision: string;
  /** Precision of keys and values, where it differs. */
  readonly kv?: string;
  readonly device: Device;
}

/** The hardware that a backend computes on. */
export interface Device {
  /** The card's name, or `CPU`. */
  readonly name: string;
  /** The card's number in the driver's order. */
  readonly index?: number;
  /** Device memory that the model takes (without adapters), and the device's total; absent for a CPU. */
  readonly memory?: { readonly takenBytes: number; readonly totalBytes: number };
}

/** One model's part of the hello. Positions from `contextLength` on are refused. */
export interface ModelSummary extends ModelCompute, ModelInfo {
  /** Pages of the whole pool. */
  readonly pageCount: number;
  /** Hugging Face directory on the host's machine, for the tokenizer. */
  readonly directory: string;
  /** Maximum `topK` of a distribution. */
  readonly maxTopK: number;
  /** Bits of a weight as the device holds it. */
  readonly bits: number;
}

/** One encoder's part of the hello. */
export interface EncoderSummary extends EncoderInfo {
  /** Segments that the model tells apart. */
  readonly tokenTypes: number;
  /** Hugging Face directory on the host's machine, for the tokenizer. */
  readonly directory: string;
  readonly device: Device;
}

/** The host's part of the hello frame. */
export interface HostHello {
  /** The host's name in the configuration, by which runtimes tell whether they reached the host that they wanted. */
  readonly name?: string;
  readonly models: readonly ModelSummary[];
  readonly encoders: readonly EncoderSummary[];
  /** Random id of one host process: runtimes on any machine can tell by it whether they share a host. */
  readonly hostId: string;
  /** Process id, so that logs and tests can tell a restarted host. */
  readonly processId: number;
  /** Version of the later frames, which the host has chosen among those of the runtime's hello; absent from a host that does not choose. */
  readonly version?: number;
}

/** Pages of one model's pool: free + cached + owned = total, always. */
export interface PageStats {
  readonly free: number;
  /** Pages without a holder, kept for their content (prefix cache). */
  readonly cached: number;
  /** Pages held by at least one inferlet; a shared page counts once. */
  readonly owned: number;
  readonly total: number;
}

/** Savings of the prefix cache since the start, unaffected by a reset. */
export interface PrefixStats {
  readonly lookups: number;
  /** Tokens looked up that were found (hit) or not (miss). */
  readonly hitTokens: number;
  readonly missTokens: number;
  /** Pages that left the cache for others. */
  readonly evictions: number;
}

/** One model's counters since the start or the last reset. */
export interface ModelStats extends ModelCompute {
  readonly name: string;
  readonly pages: PageStats;
  /** Pages whose content is in the swap store and in no frame of the pool. */
  readonly swappedOutPages: number;
  /** Approximate number of owned pages that could go to the swap store when other inferlets need room, within the store's free room. */
  readonly idlePages: number;
  readonly prefix: PrefixStats;
  /** Pages moved to the swap store, and back. */
  readonly swapsOut: number;
  readonly swapsIn: number;
  /** Pages of exports with a lease now; a page in two of them counts twice. */
  readonly pinnedPages: number;
  /** Leases that ended early, because memory was needed. */
  readonly leasesEnded: number;
  /** Invocations, each with its children, preempted to take their memory; and those of them that wait now. */
  readonly preemptions: number;
  readonly preempted: number;
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
  /** Those of `batches` that went to the device while it computed the batch before, or before their calls had come. */
  readonly stepsAhead: number;
  /** Sequences of guessed steps that no call took. Absent from hosts that do not guess. */
  readonly vainGuesses?: number;
  /** Mean sequences per batch; 0 without batches. */
  readonly meanBatchSize: number;
  /** `batchSizes[n]` batches had n sequences; the last entry holds all larger ones. */
  readonly batchSizes: readonly number[];
  /** Inputs computed (prefill and decode). */
  readonly tokens: number;
  /** Tokens of sequences with one input. */
  readonly decodeTokens: number;
  readonly images: number;
  /** Images that were not encoded, because their tenant had them encoded before. */
  readonly imageHits: number;
  readonly failedCalls: number;
  /** Milliseconds that the device computed. */
  readonly deviceBusyMs: number;
  /** Milliseconds per batch on the device, mean. */
  readonly meanStepMs: number;
  /**
   * Maximum efficient size of a step, inputs: up to it, more inputs cost little time; beyond, time grows with them. Absent until the measured
   * times tell it.
   */
  readonly efficientTokens?: number;
  /** Measured times of steps, one point for each range of sizes. Absent from hosts that do not measure them. */
  readonly stepTimes?: StepTimes;
  /** Milliseconds that a free device waited for queues that had just got results. */
  readonly graceMs: number;
  /** Waits of calls for their batches: `waitCounts[i]` up to `BATCH_WAIT_BOUNDS_MS[i]`, the last longer; `waitMs` is their sum. */
  readonly waitCounts: readonly number[];
  readonly waitMs: number;
  /** Share of the computed input × key work that was padding, 0 to 1; 0 for a backend that does not pad. */
  readonly paddingShare: number;
  /** Graphs of steps that the driver has refused since the start: such steps are slower. 0 for a backend without graphs. */
  readonly graphsRefused: number;
}

/** Mean times of a causal model's steps by their size, smallest first. */
export interface StepTimes {
  /** Times by the number of inputs of all sequences of a step. */
  readonly tokens: readonly { readonly size: number; readonly ms: number }[];
  /** Times by the number of sequences, of steps that only decode: each sequence has one input. */
  readonly sequences: readonly { readonly size: number; readonly ms: number }[];
}

/** One encoder's counters since the start or the last reset. */
export interface EncoderStats {
  readonly name: string;
  readonly kind: EncoderSummary['kind'];
  readonly device: Device;
  /** Calls that wait for the device now, or are computed. */
  readonly waitingCalls: number;
  /** Device steps. */
  readonly batches: number;
  readonly texts: number;
  /** Tokens computed, without padding. */
  readonly tokens: number;
  readonly failedCalls: number;
  /** Milliseconds that the device computed. */
  readonly deviceBusyMs: number;
  /** Maximum tokens of the next batch, padding included: as many as take about 25 ms by `latency`. */
  readonly maxBatchTokens: number;
  /** Measured time of batches by their size, smallest first. */
  readonly latency: readonly { readonly tokens: number; readonly msPerToken: number }[];
}

/** Share of a model's device steps that were handed over ahead. */
export function aheadShare({ stepsAhead, batches }: Pick<ModelStats, 'stepsAhead' | 'batches'>): number {
  return batches === 0 ? 0 : stepsAhead / batches;
}

export interface StatsOptions {
  /** Resets the counters after reading. */
  readonly reset?: boolean;
  /** Reads neither tenants nor the health of the process. */
  readonly modelsOnly?: boolean;
}

export interface GpuHostStats {
  /** Since the start or the last reset. */
  readonly elapsedMs: number;
  readonly connections: number;
  readonly models: readonly ModelStats[];
  readonly encoders: readonly EncoderStats[];
  /** The tenants that hold most pages, largest first; at most 1,000. Empty with `modelsOnly`. */
  readonly tenants: readonly TenantPageStats[];
  /** Health of the process; absent when it is not watched, and with `modelsOnly`. */
  readonly vitals?: Vitals;
}

/** Pages of one tenant on this host: inferlets, exports and KV files, on all models. */
export interface TenantPageStats {
  readonly tenant: string;
  /** Distinct pages, resident or not: a shared page counts once. */
  readonly pages: number;
  /** Null without a limit. */
  readonly maxPages: number | null;
}
