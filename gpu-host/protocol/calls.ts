/**
 * Arguments and results of the device calls: the records of `wit/{forward,output-text,fused}.wit` in camelCase, lists as typed arrays.
 * Lists handed to a call are copied before it returns, so they may be views of a guest's memory.
 */

/** Explicit visibility, run-length encoded; see `forward.mask` in `wit/forward.wit`. */
export interface Mask {
  /** Runs of all rows, one row after another; in a row they alternate hidden, visible, hidden, … */
  readonly runs: Uint32Array;
  /** Number of runs of each row; one row per input. */
  readonly rowLengths: Uint32Array;
}

/** The most probable tokens, most probable first, equal logits by token id. */
export interface Distribution {
  readonly tokens: Uint32Array;
  /** Natural logarithms of the probabilities over the whole vocabulary at temperature 1. */
  readonly logProbabilities: Float32Array;
}

/** Parameters for the device's choice of a token; see `fused.sampler` in `wit/fused.wit`. */
export interface Sampler {
  /** 0 is greedy and ignores the rest. */
  readonly temperature: number;
  /** 0 takes the host's cap. */
  readonly topK: number;
  /** 1 disables the cut. */
  readonly topP: number;
  /** 0 disables the cut. */
  readonly minP: number;
  /** Equal seeds give equal tokens: the draw depends on the seed and the input's position only. */
  readonly seed: number;
}

/** Output of a step for each of its last `rows` inputs. */
export type StepOutput =
  | { readonly tag: 'none' }
  | { readonly tag: 'sample'; readonly val: Sampler }
  | { readonly tag: 'distributions'; readonly val: number };

export interface StepRequest {
  readonly tokens: Uint32Array;
  readonly positions: Uint32Array;
  readonly inPages: Uint32Array;
  readonly outPages: Uint32Array;
  readonly mask: Mask | undefined;
  /** Inputs, counted from the last, that get an output. */
  readonly rows: number;
  readonly output: StepOutput;
  /** Allowed tokens, one row of `ceil(vocabularySize / 32)` words per output row: bit `t % 32` of word `t / 32`. Without it all are. */
  readonly allowed?: Uint32Array | undefined;
  /** Name of the low-rank adapter to compute with. */
  readonly adapter?: string | undefined;
}

export interface StepResult {
  /** One token per row for `sample`, else empty. */
  readonly tokens: Uint32Array;
  /** One per row for `distributions`, else empty. */
  readonly distributions: readonly Distribution[];
  /** Inputs taken from the prefix cache instead of computed. */
  readonly cachedTokens: number;
}

export interface RunRequest {
  /** First input; each later input is the token sampled before it, at the next position. */
  readonly token: number;
  readonly position: number;
  /** Read and appended to, in order: the sequence's pages with room for `maxTokens` more. */
  readonly pages: Uint32Array;
  readonly maxTokens: number;
  readonly sampler: Sampler;
  /** Decoding stops after one of these was sampled. */
  readonly stopTokens: Uint32Array;
}

/** In the order of their wire codes, from 1. */
export const FINISH_REASONS = ['stop-token', 'max-tokens', 'stopped'] as const;
export type FinishReason = (typeof FINISH_REASONS)[number];

export interface RunChunk {
  /** Tokens since the last `next`, in order, at least one unless finished. */
  readonly tokens: Uint32Array;
  /** Set with the last chunk. */
  readonly finished: FinishReason | undefined;
}

/** The pages that an import or an opened file mapped. */
export interface Imported {
  readonly pages: Uint32Array;
  /** Filled slots. */
  readonly tokens: number;
  /** One past the largest position. */
  readonly nextPosition: number;
}

/** A snapshot of pages under a name; see `allocate.export-info` in `wit/allocate.wit`. */
export interface ExportInfo {
  readonly name: string;
  readonly pages: number;
  readonly tokens: number;
  readonly nextPosition: number;
  readonly persistent: boolean;
}

/** Rights of the tenant's other functions on a file, in the order of their wire codes, from 0. */
export const FILE_RIGHTS = ['private', 'readable', 'writable'] as const;
export type FileRights = (typeof FILE_RIGHTS)[number];

/** A named file of keys and values; see `kv-files.file-info` in `wit/kv-files.wit`. */
export interface FileInfo {
  readonly name: string;
  readonly tokens: number;
  readonly nextPosition: number;
  readonly persistent: boolean;
  readonly rights: FileRights;
  /** The function that made the file. */
  readonly owner: string;
  readonly locked: boolean;
}

/** A low-rank adapter of a model; see `wit/adapter.wit`. */
export interface AdapterInfo {
  readonly name: string;
  readonly rank: number;
  /** True when the adapter is in the device's memory. */
  readonly loaded: boolean;
}

/** Options of a file save. */
export interface FileSave {
  readonly persistent: boolean;
  readonly rights: FileRights;
  /** The function that saves it: the owner of a new file. */
  readonly functionName: string;
}

/** Maximum pages that a tenant holds on one host, as read at some time. */
export interface TenantLimit {
  /** Null for no limit. */
  readonly pages: number | null;
  /** Time of the reading, ms since the epoch by the clock of the limit's store: of two limits the later reading counts. */
  readonly readAt: number;
}
