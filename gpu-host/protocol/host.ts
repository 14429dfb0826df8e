/** What the hello says of one model. */
export interface ModelSummary {
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

/** What the prefix cache saved since the start (a reset leaves it alone): tokens asked of it, and which of them were there. */
export interface PrefixStats {
  readonly lookups: number;
  readonly hitTokens: number;
  readonly missTokens: number;
  /** Pages that left the cache for others. */
  readonly evictions: number;
}

/** One model's counters since the start or the last reset. */
export interface ModelStats {
  readonly name: string;
  readonly backend: string;
  readonly pages: PageStats;
  /** Pages whose content is in the swap store, and in no frame of the pool. */
  readonly swappedOutPages: number;
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
  /** Share of the computed input × key work that was padding, 0 to 1; 0 for a backend that does not pad. */
  readonly paddingShare: number;
}

export interface GpuHostStats {
  /** Since the start or the last reset. */
  readonly elapsedMs: number;
  readonly connections: number;
  readonly models: readonly ModelStats[];
}
