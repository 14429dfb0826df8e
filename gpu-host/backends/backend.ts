import type { LoadedAdapter } from '#gpu-host/models/adapter.ts';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { VisionConfig } from '#gpu-host/models/vision/config.ts';
import type { Device } from '../protocol/host.ts';

/**
 * One model on one device: its weights and its pool of KV slots. The same tests run on every implementation.
 *
 * A backend knows physical slots only (`page × pageSize + offset`). `gpu-host/memory` keeps addresses, ownership, page masks, filled slots.
 * A backend keeps rotated keys and values per slot, nothing else. Callers make one call at a time, except `forward` where `ahead` is set.
 */
export interface Backend {
  readonly name: 'reference' | 'onnx' | 'cuda' | 'ggml';
  readonly config: ModelConfig;
  /** Number format in which the backend computes with the weights, such as `bf16`. */
  readonly precision: string;
  /** Bits of a weight on the device: the median over the weight matrices of the layers. Present when the model's file determines the widths. */
  readonly weightBits?: number;
  /** Number format of keys and values, where it differs from `precision`. */
  readonly kv?: string | undefined;
  readonly device: Device;
  readonly pageSize: number;
  /** Pages of the pool, fixed at start. */
  readonly pageCount: number;
  /** Bytes of one page's keys and values in the layout of `readPage`. */
  readonly pageBytes: number;
  /** True when `forward` itself refuses slots outside the pool at little cost: callers then need not check slots from their own tables. */
  readonly checksSlots?: boolean;
  /**
   * True when callers may call `forward` once more while the previous `forward` runs, and when `forward` takes `picked` inputs.
   * The backend then prepares and submits the second batch while the device still computes the first one.
   */
  readonly ahead?: boolean;
  /** True when the sequences of one batch may have different adapters. */
  readonly mixesAdapters?: boolean;
  /**
   * True when the backend draws from no more than the row's `topK` most probable tokens, also where the draw allows more. The other backends draw
   * from the whole vocabulary.
   */
  readonly truncatesDraws?: boolean;
  /**
   * Computes all sequences in one device step. A sequence may read slots that an earlier sequence of the batch writes, because each layer
   * stores all keys and values before attention. No two sequences may write the same slot, and none may write a slot that an earlier one reads.
   */
  forward(batch: readonly SequenceInput[]): Promise<readonly SequenceOutput[]>;
  /**
   * Brings a low-rank adapter into the device's memory, in the form that `forward` takes. The adapter stays there while it is referenced.
   * @throws ModelError when its matrices cannot be read
   */
  loadAdapter(adapter: LoadedAdapter): Promise<DeviceAdapter>;
  /** Upper bound of the bytes that `loadAdapter` takes on the device. Without this method, callers count the matrices as 32-bit floats. */
  adapterBytes?(adapter: LoadedAdapter): number;
  /** The `topK` most probable tokens after each of `count` states (`count × hiddenSize`, as `forward` returned them). */
  project(states: Float32Array, count: number, topK: number): Promise<TopTokens>;
  /** For each of `count` states, log-probabilities of given tokens, and the entropy of its whole distribution. */
  score(states: Float32Array, count: number, tokens: readonly Uint32Array[]): Promise<StateScores>;
  /**
   * Copies keys and values between slots, pairwise; reads all sources before it writes any destination. `shifts` rotates each copied key
   * by that many further positions (rotations add up, so a key of position p becomes one of p + shift).
   */
  copySlots(sources: Uint32Array, destinations: Uint32Array, shifts?: Int32Array): void;
  /** Copies a page's keys and values, `pageBytes` bytes, out of the pool. */
  readPage(page: number, into: Uint8Array): void;
  /** Restores a page, bit for bit, from the bytes that `readPage` of the same model and backend returned. */
  writePage(page: number, from: Uint8Array): void;
  /**
   * Like `readPage` and `writePage`, but with memory of `allocatePinned` they only queue the copy; the device runs later calls after the copy.
   * Until `settlePages` returns or `pagesSettled` resolves, the caller must keep the memory, and only queued copies may use it. `settlePages`
   * blocks the thread until all copies have ended; `pagesSettled` leaves it free. With other memory, the copy is complete when the call returns.
   */
  queueReadPage?(page: number, into: Uint8Array): void;
  queueWritePage?(page: number, from: Uint8Array): void;
  settlePages?(): void;
  /** Resolves when the copies that were queued before the call have ended. */
  pagesSettled?(): Promise<void>;
  /** Allocates the host memory with which the device exchanges pages fastest; undefined when none is left. */
  allocatePinned?(bytes: number): Uint8Array | undefined;
  /**
   * Share of the estimated work since start that is padding: rows that only fill up a shape, and scores of inputs against keys of other
   * sequences. Pairs that a mask hides inside one sequence do not count as padding. Only backends that pad have this method.
   */
  paddingShare?(): number;
  /** Padding share of the last `forward` alone. */
  batchPadding?(): number;
  /** Present on backends whose steps allocate memory by their size; the others reserve this memory at their start. */
  readonly steps?: StepEstimate;
  /** Present on backends that replay steps from graphs. */
  graphs?(): GraphReport;
  /** Present for models that take images. */
  readonly images?: ImageEncoder | undefined;
  dispose(): Promise<void>;
}

/** Memory and time of steps, estimated from their size before they are computed. Both estimates grow with each size. */
export interface StepEstimate {
  /** Maximum bytes of the temporary buffers of one step. The backend splits larger batches; a single sequence may exceed it. */
  readonly maxBytes: number;
  /** Bytes of the temporary buffers of a step with one sequence. */
  bytes(step: StepShape): number;
  /** Time of a step with one sequence, without the fixed part, as a multiple of the time that an input without context adds. */
  work(step: StepShape): number;
}

/** The sizes of one sequence that decide the cost of its step. */
export interface StepShape {
  readonly inputs: number;
  /** Context slots. */
  readonly context: number;
  /** Inputs for which logits are computed. */
  readonly outputs: number;
}

/** Captured step graphs that the backend keeps, and how many the driver refused. A refused step runs slower, with the same results. */
export interface GraphReport {
  readonly captured: number;
  readonly refused: number;
  /** The driver's message for the last refused graph; empty when it refused none. */
  readonly why: string;
}

/** A model's vision tower and projector. */
export interface ImageEncoder {
  readonly config: VisionConfig;
  /**
   * Encodes images in one device step. Each image is `imageSize × imageSize` pixels of red, green and blue, row by row, not normalised;
   * each result has `embeds × embedSize` values.
   */
  encode(images: readonly Uint8Array[]): Promise<readonly Float32Array[]>;
}

/** An adapter in a device's memory; only the backend that made it can use it. */
export interface DeviceAdapter {
  /** Bytes of device memory that the adapter takes. */
  readonly bytes: number;
  /** Milliseconds for which loading the adapter kept the device from other work. */
  readonly loadMs: number;
  /** Frees the adapter's memory at once; callers must not use the adapter afterwards. Without this method, garbage collection frees it. */
  release?(): void;
}

/** One sequence of a batch: its inputs, and the slots that it reads and writes. `n` is `positions.length`. */
export interface SequenceInput {
  readonly inputs: InputRows;
  /** Position of each input, for the rotation. */
  readonly positions: Uint32Array;
  /** Slots read as context, in order. */
  readonly context: Uint32Array;
  /**
   * Visibility as `n × (context.length + n)` bytes: row i has 1 for each key that input i may see. The keys are the context slots, then the
   * inputs. `causal` is a cheap form of the common case: input i sees every context slot and the inputs j ≤ i.
   */
  readonly mask: Uint8Array | 'causal';
  /** Slot that takes each input's key and value; length `n`, or empty when keys and values live for this call only. */
  readonly writes: Uint32Array;
  /** Results wanted for the last `rows` inputs. */
  readonly output: OutputRequest;
  /** True to return the attention that each key received, too; not allowed with an adapter. */
  readonly attention?: boolean;
  /** Adapter added to the model's projections. Unless the backend `mixesAdapters`, all sequences of a batch have the same one, or none has one. */
  readonly adapter?: DeviceAdapter;
}

/** Token ids to embed, or rows of `hiddenSize` values to take as they are (embeds copied, or states of an earlier forward). */
export type InputRows =
  | { readonly kind: 'tokens'; readonly tokens: Uint32Array }
  /**
   * Only on `ahead` backends: tokens that the previous `forward`, which may still run, picks. `rows` index the rows of all `top` outputs of its
   * batch. A row picks its drawn token, else its most probable one (an arbitrary token when its logits are NaN or the previous `forward` fails).
   * The backend refuses such inputs when it refused the previous `forward`, or when either batch needs more than one device step.
   */
  | { readonly kind: 'picked'; readonly rows: Uint32Array }
  | { readonly kind: 'embeds'; readonly embeds: Float32Array };

export type OutputRequest =
  | { readonly kind: 'none' }
  /** States after the final norm, `rows × hiddenSize`. */
  | { readonly kind: 'states'; readonly rows: number }
  | TopRequest;

/** The `topK` most probable tokens of each row. */
export interface TopRequest {
  readonly kind: 'top';
  readonly rows: number;
  readonly topK: number;
  /** True to omit the probabilities; most backends then save a sum over the vocabulary. A row whose logits are NaN begins with `NOTHING_DRAWN`. */
  readonly tokensOnly?: boolean;
  /** True to return the rows' states, too. */
  readonly states?: boolean;
  /**
   * Tokens that may be chosen: one row of `ceil(vocabularySize / 32)` words per output row, bit `t % 32` of word `t / 32`. Probabilities
   * are then over the allowed tokens; when fewer than `topK` are allowed, the entries left over are token 0 with log-probability -Infinity.
   */
  readonly allowed?: Uint32Array;
  /** One draw per row, when the caller wants only a drawn token: the output is `drawn`. `topK` is then the number of tokens that nearly always decide. */
  readonly draws?: readonly Draw[];
  /** Changes of the row's logits, applied before all other steps. Allowed only with one row. `forward` copies the lists before it returns. */
  readonly changes?: RowChanges;
}

/**
 * Changes of a row's logits. Tokens whose changed logit is -Infinity are left out, like tokens that are not `allowed`. When no token is left,
 * nothing is drawn.
 */
export interface RowChanges {
  /** Distinct token ids. The bit `CHOSEN_TOKEN` marks tokens that the sampler has already chosen for this text. */
  readonly tokens: Uint32Array;
  /** Added to the logit of each token: numbers below Infinity. */
  readonly values: Float32Array;
  /** Penalties of the row's input if it is a `picked` token: its logit loses `frequency`, and `presence` too unless `tokens` marks it as chosen. */
  readonly frequency: number;
  readonly presence: number;
}

/** A bit beside a token's id in `RowChanges`. */
export const CHOSEN_TOKEN = 0x8000_0000;

/**
 * Parameters for drawing one of a row's tokens: temperature applies first, then top-k, top-p and min-p. Each cut keeps the first tokens in order of
 * falling logit, then rising id, and is relative to those that the cut before it kept. Seed and position determine the draw.
 */
export interface Draw {
  /** Above 0. The temperature and the cuts are 32-bit floats. */
  readonly temperature: number;
  /** Number of most probable tokens to draw from; 0 for the whole vocabulary. */
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
  readonly seed: number;
  readonly position: number;
}

/** Token drawn from a row whose logits are not numbers, or whose `changes` leave no token. */
export const NOTHING_DRAWN = 0xffff_ffff;

export type SequenceOutput = (
  | { readonly kind: 'none' }
  | { readonly kind: 'states'; readonly states: Float32Array }
  | ({
      readonly kind: 'top';
      readonly states?: Float32Array;
      /** The token drawn from each row, or `NOTHING_DRAWN`; the output then has no other tokens and no probabilities. */
      readonly drawn?: Uint32Array;
    } & TopTokens)
) & {
  /**
   * Present on request: attention received by each context slot, then by each input; summed over the call's inputs, averaged over layers
   * and heads. All values sum to the number of inputs.
   */
  readonly attention?: Float32Array;
};

/** Row-major `rows × topK`, most probable first, equal logits by token id. `topK` is at most the size of the vocabulary. */
export interface TopTokens {
  readonly topK: number;
  readonly tokens: Uint32Array;
  /** Natural logarithms of probabilities over the whole vocabulary at temperature 1; empty for `tokensOnly`. */
  readonly logProbabilities: Float32Array;
}

export interface StateScores {
  /** Natural logarithms of the requested tokens' probabilities, one list per state. */
  readonly logProbabilities: readonly Float32Array[];
  /** Entropy of each state's distribution, nats. */
  readonly entropies: Float32Array;
}
