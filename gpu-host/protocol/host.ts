import type { Vitals } from '#infra/telemetry/vitals.ts';
import type { EncoderInfo, ModelInfo } from '#wit/generated/host.ts';
import type { ThoughtSetting } from '../models/thoughts.ts';

/** Bounds of the histogram `ModelStats.waitCounts`, milliseconds. */
export const BATCH_WAIT_BOUNDS_MS = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 1000];

/** Backend, precision and device of a model. */
export interface ModelCompute {
  readonly backend: string;
  /** Precision of the weights, such as `bf16`. */
  readonly precision: string;
  /** Precision of keys and values; absent when it is that of the weights. */
  readonly kv?: string;
  readonly device: Device;
  /** Why the host chose the backend; absent when the configuration names it. */
  readonly reason?: string;
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

/** One model, as the host's hello frame describes it. The model refuses inputs at positions from `contextLength` on. */
export interface ModelSummary extends ModelCompute, ModelInfo {
  /** Pages of the whole pool. */
  readonly pageCount: number;
  /** Hugging Face directory on the host's machine, for the tokenizer. */
  readonly directory: string;
  /** Maximum `topK` of a distribution. */
  readonly maxTopK: number;
  /** Bits of one weight in the device's memory. */
  readonly bits: number;
  /** The marks of thoughts from the model's setting; absent without a setting. */
  readonly thoughts?: ThoughtSetting;
}

/** One encoder, as the host's hello frame describes it. */
export interface EncoderSummary extends EncoderInfo {
  /** Maximum segments of one text, such as a query and a document, that the model tells apart. */
  readonly tokenTypes: number;
  /** Hugging Face directory on the host's machine, for the tokenizer. */
  readonly directory: string;
  readonly device: Device;
}

/** The content of a host's hello frame. */
export interface HostHello {
  /** The host's name in the configuration. A runtime uses it to check that the expected host answers at an address. */
  readonly name?: string;
  readonly models: readonly ModelSummary[];
  readonly encoders: readonly EncoderSummary[];
  /** Random id of one host process: by this id, two runtimes on any machines find out that they use the same host. */
  readonly hostId: string;
  /** Id of the process in its operating system, by which logs and tests notice a restart. */
  readonly processId: number;
  /** Version of all later frames, chosen by the host among those in the runtime's hello. */
  readonly version: number;
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

/** Savings of the prefix cache since the host's start. A reset of the counters leaves them as they are. */
export interface PrefixStats {
  readonly lookups: number;
  /** Looked-up tokens whose pages the cache had. */
  readonly hitTokens: number;
  /** Looked-up tokens whose pages the cache did not have. */
  readonly missTokens: number;
  /** Pages that the cache gave up to make room. */
  readonly evictions: number;
}

/** One model's counters since the start or the last reset. */
export interface ModelStats extends ModelCompute {
  readonly name: string;
  readonly pages: PageStats;
  /** Pages whose content is in the swap store and in no frame of the pool. */
  readonly swappedOutPages: number;
  /** Approximate number of owned pages that other inferlets could push out to the swap store now, as far as the store has room. */
  readonly idlePages: number;
  readonly prefix: PrefixStats;
  /** Pages moved to the swap store. */
  readonly swapsOut: number;
  /** Pages moved back from the swap store. */
  readonly swapsIn: number;
  /** Pages of exports with a lease now; a page of two such exports counts twice. */
  readonly pinnedPages: number;
  /** Leases that ended before their time, because memory was needed or the export was removed. */
  readonly leasesEnded: number;
  /** Families (a root invocation and its children) that were preempted to take their memory. */
  readonly preemptions: number;
  /** Preempted families that wait to return now. */
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
  /** Steps among `batches` that went to the device early: while it computed the step before, or as a guess, before their calls had come. */
  readonly stepsAhead: number;
  /** Sequences of guessed steps that were computed in vain, because no call asked for them. Absent from hosts that do not guess. */
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
  /** Images whose embeds came from the image cache: a call of the same tenant had them encoded before. */
  readonly imageHits: number;
  readonly failedCalls: number;
  /** Milliseconds that the device computed. */
  readonly deviceBusyMs: number;
  /** Milliseconds per batch on the device, mean. */
  readonly meanStepMs: number;
  /**
   * Maximum efficient size of a step, in inputs. Up to this size, further inputs cost little time; beyond it, the time grows with each input.
   * Absent until enough times of steps have been measured.
   */
  readonly efficientTokens?: number;
  /** Measured times of steps, one point for each range of sizes. Absent from hosts that do not measure them. */
  readonly stepTimes?: StepTimes;
  /** Milliseconds that a free device waited for queues that had just got results. */
  readonly graceMs: number;
  /** Histogram of the waits of calls for their batches, with the bounds of `BATCH_WAIT_BOUNDS_MS`; the last entry counts longer waits. */
  readonly waitCounts: readonly number[];
  /** Sum of these waits. */
  readonly waitMs: number;
  /** Share of the attention's work (pairs of an input and a key) that was spent on padding, 0 to 1; 0 for a backend that does not pad. */
  readonly paddingShare: number;
  /** Step graphs that the GPU's driver has refused since the start: their steps are slower. 0 for a backend without graphs. */
  readonly graphsRefused: number;
}

/** Mean times of a causal model's steps by their size, the smallest size first. */
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
  /** Maximum tokens of the next batch, padding included: as many as would take about 25 ms, estimated from `latency`. */
  readonly maxBatchTokens: number;
  /** Measured time of batches by their size, smallest first. */
  readonly latency: readonly { readonly tokens: number; readonly msPerToken: number }[];
}

/** Share of a model's device steps that went to the device early (`ModelStats.stepsAhead`), 0 to 1. */
export function aheadShare({ stepsAhead, batches }: Pick<ModelStats, 'stepsAhead' | 'batches'>): number {
  return batches === 0 ? 0 : stepsAhead / batches;
}

export interface StatsOptions {
  /** Resets the counters after reading. */
  readonly reset?: boolean;
  /** True to leave out the tenants and the health of the process. */
  readonly modelsOnly?: boolean;
}

export interface GpuHostStats {
  /** Time since the start or the last reset. */
  readonly elapsedMs: number;
  readonly connections: number;
  readonly models: readonly ModelStats[];
  readonly encoders: readonly EncoderStats[];
  /** The tenants that hold most pages, largest first; at most 1,000. Empty with `modelsOnly`. */
  readonly tenants: readonly TenantPageStats[];
  /** Health of the process; absent when it is not watched, and with `modelsOnly`. */
  readonly vitals?: Vitals;
}

/** Pages that the inferlets, exports and KV files of one tenant hold on this host, on all models. */
export interface TenantPageStats {
  readonly tenant: string;
  /** Distinct pages, on the device or swapped out: a shared page counts once. */
  readonly pages: number;
  /** Null without a limit. */
  readonly maxPages: number | null;
}
