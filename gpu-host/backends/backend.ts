import type { LoadedAdapter } from '#gpu-host/models/adapter.ts';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { VisionConfig } from '#gpu-host/models/vision/config.ts';

/**
 * One model on one device: its weights and its pool of KV slots. The same tests run on every implementation.
 *
 * A backend knows physical slots only (`page × pageSize + offset`); addresses, ownership, masks of pages and which slots are filled are
 * the memory's. It keeps keys (rotated) and values per slot, nothing else. Calls are made one at a time, but for a `forward` where `ahead` says so.
 */
export interface Backend {
  readonly name: 'reference' | 'onnx' | 'cuda';
  readonly config: ModelConfig;
  /** Of the weights as they are computed with, such as `bf16`. */
  readonly precision: string;
  /** Of keys and values, where it is another one. */
  readonly kv?: string | undefined;
  readonly device: Device;
  readonly pageSize: number;
  /** Pages of the pool, fixed at start. */
  readonly pageCount: number;
  /** Bytes of one page's keys and values, as `readPage` gives them. */
  readonly pageBytes: number;
  /** Whether `forward` refuses slots outside of the pool cheaply by itself, so that who made them of its own tables need not look at each. */
  readonly checksSlots?: boolean;
  /**
   * Whether `forward` may be called once more while the one before it is under way, and takes `picked` inputs: what it computes for the first is
   * then prepared and handed over for the second while the device is busy, instead of after.
   */
  readonly ahead?: boolean;
  /**
   * Computes all sequences in one device step. A sequence may read slots that an earlier one of the batch writes (keys and values precede
   * attention in every layer); no two write the same slot, and none writes what an earlier one reads.
   */
  forward(batch: readonly SequenceInput[]): Promise<readonly SequenceOutput[]>;
  /**
   * Brings a low-rank adapter into the device's memory, in the form in which `forward` takes it. It stays there as long as somebody keeps it.
   * @throws ModelError when its matrices cannot be read
   */
  loadAdapter(adapter: LoadedAdapter): Promise<DeviceAdapter>;
  /** The `topK` most probable tokens after each of `count` states (`count × hiddenSize`, as `forward` returned them). */
  project(states: Float32Array, count: number, topK: number): Promise<TopTokens>;
  /** For each of `count` states, log-probabilities of given tokens, and the entropy of its whole distribution. */
  score(states: Float32Array, count: number, tokens: readonly Uint32Array[]): Promise<StateScores>;
  /**
   * Copies keys and values between slots, pairwise; all sources are read before any destination is written. With `shifts` each copied key
   * is rotated on by that many positions (rotations add up, so a key of position p becomes one of p + shift).
   */
  copySlots(sources: Uint32Array, destinations: Uint32Array, shifts?: Int32Array): void;
  /** Copies a page's keys and values out, `pageBytes` of them, in a layout that `writePage` of the same model and backend takes back bit for bit. */
  readPage(page: number, into: Uint8Array): void;
  writePage(page: number, from: Uint8Array): void;
  /** Host memory from and to which the device copies pages fastest; undefined when there is none left. */
  allocatePinned?(bytes: number): Uint8Array | undefined;
  /**
   * Share of the estimated work since start that only fills shapes up, or scores inputs against keys of other sequences (a backend that
   * pads has it). Pairs that a mask hides inside a sequence are no padding.
   */
  paddingShare?(): number;
  /** The same of the last `forward` alone. */
  batchPadding?(): number;
  /** Of a backend that replays steps from graphs. */
  graphs?(): GraphReport;
  /** Of models that take images. */
  readonly images?: ImageEncoder | undefined;
  dispose(): Promise<void>;
}

/** What a backend computes on. */
export interface Device {
  /** The card's, or `CPU`. */
  readonly name: string;
  /** Which of several, as the driver counts them. */
  readonly index?: number;
  /** Of its memory what the model takes, adapters apart, and all that there is; not told of a CPU. */
  readonly memory?: { readonly takenBytes: number; readonly totalBytes: number };
}

/** Graphs that were captured of steps and are kept, and how often the driver has refused one: such steps are slower and otherwise the same. */
export interface GraphReport {
  readonly captured: number;
  readonly refused: number;
  /** The driver's words for the last that it refused; empty without one. */
  readonly why: string;
}

/** A model's vision tower and projector. */
export interface ImageEncoder {
  readonly config: VisionConfig;
  /**
   * Encodes pictures in one device step: each `imageSize × imageSize` pixels of red, green and blue, row by row, not normalised yet; into
   * `embeds × embedSize` values each.
   */
  encode(images: readonly Uint8Array[]): Promise<readonly Float32Array[]>;
}

/** An adapter in a device's memory; it means something only to the backend that made it. */
export interface DeviceAdapter {
  /** What it takes there. */
  readonly bytes: number;
  /** Milliseconds that the device was kept from other work to bring it there. */
  readonly loadMs: number;
  /** Gives its memory back at once; it must not be used any more. Without it that happens when nobody keeps it. */
  release?(): void;
}

/** One call's inputs over one set of slots. `n` is `positions.length`. */
export interface SequenceInput {
  readonly inputs: InputRows;
  /** Position of each input, for the rotation. */
  readonly positions: Uint32Array;
  /** Slots read as context, in order. */
  readonly context: Uint32Array;
  /**
   * Visibility, `n × (context.length + n)`, 1 where input i may see that key: first the context slots, then the inputs.
   * `causal` is the common case made cheap: every context slot, and inputs j ≤ i.
   */
  readonly mask: Uint8Array | 'causal';
  /** Slot that takes each input's key and value; length `n`, or empty when they live for this call only. */
  readonly writes: Uint32Array;
  /** What is wanted of the last `rows` inputs. */
  readonly output: OutputRequest;
  /** Whether the attention that each key received is wanted as well; not with an adapter. */
  readonly attention?: boolean;
  /** What is added to the model's projections. All sequences of one batch have the same, or none has any. */
  readonly adapter?: DeviceAdapter;
}

/** Token ids to embed, or rows of `hiddenSize` values to take as they are (embeds copied, or states of an earlier forward). */
export type InputRows =
  | { readonly kind: 'tokens'; readonly tokens: Uint32Array }
  /**
   * Of backends that work `ahead`: tokens that the `forward` called just before this one picks, whether or not it has ended. `rows` are rows of its `top`
   * outputs, counted over its batch; such a row picks the token drawn for it, or else its most probable one (any token, where the model computed no
   * numbers or the `forward` fails). Refused when that `forward` was refused, or either is more than the device computes in one go.
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
  /** Without their probabilities, which saves a sum over the vocabulary. */
  readonly tokensOnly?: boolean;
  /** The rows' states as well. */
  readonly states?: boolean;
  /**
   * Tokens that may be chosen: one row of `ceil(vocabularySize / 32)` words per output row, bit `t % 32` of word `t / 32`. Probabilities are
   * then over the allowed tokens; places past the last allowed one hold token 0 with log-probability -Infinity.
   */
  readonly allowed?: Uint32Array;
  /**
   * One for each row when nothing but a token drawn of its `topK` is wanted. A backend that draws gives `drawn`; one that does not leaves this
   * be, and whoever asked draws.
   */
  readonly draws?: readonly Draw[];
}

/** How one token is drawn of a row's top ones: the cuts of the handlers' sampler, in their order. The same seed and position draw alike. */
export interface Draw {
  /** Above 0. This and the cuts are 32-bit floats. */
  readonly temperature: number;
  readonly topP: number;
  readonly minP: number;
  readonly seed: number;
  readonly position: number;
}

/** What is drawn of a row whose logits are no numbers. */
export const NOTHING_DRAWN = 0xffff_ffff;

export type SequenceOutput = (
  | { readonly kind: 'none' }
  | { readonly kind: 'states'; readonly states: Float32Array }
  | ({
      readonly kind: 'top';
      readonly states?: Float32Array;
      /** The token drawn of each row, or `NOTHING_DRAWN`; there are no other tokens and no probabilities then. */
      readonly drawn?: Uint32Array;
    } & TopTokens)
) & {
  /**
   * When asked for: attention received by each context slot, then by each input; summed over the call's inputs, averaged over layers and
   * heads. All of it sums to the number of inputs.
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
  /** Natural logarithms of the probabilities of the tokens asked for, one list per state. */
  readonly logProbabilities: readonly Float32Array[];
  /** Entropy of each state's distribution, nats. */
  readonly entropies: Float32Array;
}
