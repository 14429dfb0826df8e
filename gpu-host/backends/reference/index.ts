import type { LoadedAdapter } from '#gpu-host/models/adapter.ts';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import { expectedTensors, type LoadedModel } from '#gpu-host/models/load.ts';
import { PROJECTIONS, type Projection } from '../../models/adapter.ts';
import {
  type Backend,
  CHOSEN_TOKEN,
  type DeviceAdapter,
  type Draw,
  NOTHING_DRAWN,
  type OutputRequest,
  type RowChanges,
  type SequenceInput,
  type SequenceOutput,
  type StateScores,
  type TopTokens,
} from '../backend.ts';
import { checkCopy, checkPage, checkPicked, checkScore, checkSequence, checkStates, InvalidInput } from '../check.ts';
import { drawPlace } from '../draw.ts';
import { type Rotation, rotationsOf } from '../rotary.ts';
import { tokensOnly } from '../tokens-only.ts';
import {
  attentionWeights,
  chosenExperts,
  gated,
  linear,
  rmsNorm,
  rotate,
  roundHeadsToFloat8,
  roundToBfloat16,
  roundToBytes,
  scoreTokens,
  softcap,
  topTokens,
  weightedSum,
} from './math.ts';
import { type KeyValue, SlotPool } from './slot-pool.ts';
import { ReferenceImageEncoder } from './vision.ts';

/** Options of {@link createReferenceBackend}. */
export interface ReferenceOptions {
  readonly pageSize: number;
  readonly pageCount: number;
  /**
   * Rounds the input of every linear layer to 8 bits in blocks of `roundedBlock` values, as kernels with 8-bit products do: this makes the
   * backend their oracle. Inputs are not rounded to 8 bits by default.
   */
  readonly roundedBlock?: number;
  /**
   * Rounds to bfloat16 the values that bfloat16 kernels pass on (inputs and outputs of linear layers, rotated queries and keys; not the
   * residual stream or logits), which shows the error of the width itself.
   */
  readonly roundedTo?: 'bf16';
  /** Rounds keys and values as kernels that keep 8 bits do: directly from the computed values, and again when a copy rotates keys. */
  readonly roundedKv?: 'fp8';
}

/**
 * The oracle: every model in plain float64 TypeScript, one row at a time, slow and obviously right.
 * Tests compare the other backends' results with its results.
 */
export async function createReferenceBackend(model: LoadedModel, options: ReferenceOptions): Promise<Backend> {
  return new ReferenceBackend(model.config, readWeights(model), options, ReferenceImageEncoder.of(model));
}

/** A sequence on its way through the layers. */
interface Passage {
  readonly sequence: SequenceInput;
  /** The residual stream, one row per input. */
  rows: Float64Array[];
  /** Attention received by each context slot, then by each input; summed over inputs, layers and heads. */
  readonly received: Float64Array;
  /** The adapter's changes, by layer. */
  readonly adapter: ReferenceAdapter | undefined;
  /** The last input, if it is a token that the batch before picked. */
  readonly pickedToken: number | undefined;
}

type Rounding = (x: Float64Array) => Float64Array;
const asItIs: Rounding = (x) => x;

class ReferenceBackend implements Backend {
  readonly name = 'reference';
  readonly precision = 'float64';
  readonly device = { name: 'CPU' };
  readonly config: ModelConfig;
  readonly ahead = true;
  readonly mixesAdapters = true;
  readonly pageSize: number;
  readonly pageCount: number;
  readonly images: ReferenceImageEncoder | undefined;
  readonly #weights: Weights;
  readonly #rotations: readonly (Rotation | null)[];
  readonly #pool: SlotPool;
  /** Rounds the inputs of linear layers; the identity when no rounding is set. */
  readonly #roundInput: Rounding;
  /** Rounds the outputs of linear layers and rotated heads. */
  readonly #roundOutput: Rounding;
  /** Rounds rotated keys, and values, when the pool keeps them in another format than the computation's. */
  readonly #roundKv: Rounding | undefined;
  /** Picked token of each row of the last batch's `top` outputs. */
  #picked: readonly number[] = [];

  constructor(
    config: ModelConfig,
    weights: Weights,
    { pageSize, pageCount, roundedBlock, roundedTo, roundedKv }: ReferenceOptions,
    images: ReferenceImageEncoder | undefined,
  ) {
    this.config = config;
    this.images = images;
    this.pageSize = pageSize;
    this.pageCount = pageCount;
    this.#roundOutput = roundedTo === undefined ? asItIs : roundToBfloat16;
    this.#roundInput = roundedBlock === undefined ? this.#roundOutput : (x) => roundToBytes(x, roundedBlock);
    this.#weights = weights;
    this.#rotations = rotationsOf(config);
    this.#roundKv = roundedKv && ((x) => roundHeadsToFloat8(x, config.headDim));
    this.#pool = new SlotPool(config, pageSize, pageCount, this.#roundKv);
  }

  get pageBytes(): number {
    return this.#pool.pageBytes;
  }

  async forward(batch: readonly SequenceInput[]): Promise<readonly SequenceOutput[]> {
    const previousPicks = this.#picked;
    this.#picked = [];
    for (const sequence of batch) checkSequence(this.config, this.#slotCount, sequence);
    checkPicked(batch, previousPicks.length);
    const adapters = batch.map(({ adapter }) => ReferenceAdapter.of(adapter));
    const passages = batch.map((sequence, i): Passage => {
      const received = new Float64Array(sequence.context.length + sequence.positions.length);
      const { inputs } = sequence;
      return {
        sequence,
        rows: this.#embed(sequence, previousPicks),
        received,
        adapter: adapters[i],
        pickedToken: inputs.kind === 'picked' ? previousPicks[inputs.rows.at(-1) ?? 0] : undefined,
      };
    });
    this.#weights.layers.forEach((layer, index) => {
      // Sequences pass each layer one after another: a later sequence reads keys and values that an earlier one has just written.
      for (const passage of passages) this.#passLayer(layer, index, passage);
    });
    const outputs = passages.map((passage) => this.#output(passage));
    this.#picked = batch.flatMap(({ output }, i) => picksOf(output, outputs[i]));
    return outputs;
  }

  async loadAdapter(adapter: LoadedAdapter): Promise<DeviceAdapter> {
    return ReferenceAdapter.read(adapter, this.config.layers);
  }

  async project(states: Float32Array, count: number, topK: number): Promise<TopTokens> {
    checkStates(this.config, states, count);
    return topTokens(this.#logits(states, count), Math.min(topK, this.config.vocabularySize));
  }

  async score(states: Float32Array, count: number, tokens: readonly Uint32Array[]): Promise<StateScores> {
    checkScore(this.config, states, count, tokens);
    return scoreTokens(this.#logits(states, count), tokens);
  }

  copySlots(sources: Uint32Array, destinations: Uint32Array, shifts?: Int32Array): void {
    checkCopy(this.#slotCount, sources, destinations, shifts);
    this.#pool.copy(sources, destinations, shifts);
  }

  readPage(page: number, into: Uint8Array): void {
    checkPage(this.pageCount, this.pageBytes, page, into);
    this.#pool.readPage(page, into);
  }

  writePage(page: number, from: Uint8Array): void {
    checkPage(this.pageCount, this.pageBytes, page, from);
    this.#pool.writePage(page, from);
  }

  async dispose(): Promise<void> {}

  get #slotCount(): number {
    return this.pageSize * this.pageCount;
  }

  #passLayer(layer: LayerWeights, index: number, passage: Passage): void {
    const { residualScale } = this.config;
    const { positions, writes } = passage.sequence;
    const normed = passage.rows.map((x) => this.#norm(x, layer.inputNorm));
    const changes = passage.adapter?.layers[index] ?? UNCHANGED;
    const newKeyValues = normed.map((x, i) => this.#keyValue(layer, changes, index, x, positions[i]));
    const attended = normed.map((x, i) => this.#attention(layer, changes, index, passage, x, i, newKeyValues));
    passage.rows = passage.rows
      .map((x, i) => add(x, scaled(this.#norm(attended[i], layer.attentionOutputNorm), residualScale)))
      .map((x) => {
        const result = this.#feedForward(layer, changes, this.#norm(x, layer.postNorm));
        return add(x, scaled(this.#norm(result, layer.feedForwardOutputNorm), residualScale));
      });
    writes.forEach((slot, i) => {
      this.#pool.write(index, slot, newKeyValues[i]);
    });
    this.#pool.positions.write(writes, positions);
  }

  #output({ sequence, rows, received, pickedToken }: Passage): SequenceOutput {
    const { layers, heads, rmsNormEpsilon, vocabularySize } = this.config;
    const { output } = sequence;
    const attention = sequence.attention
      ? { attention: Float32Array.from(received, (sum) => sum / (layers * heads)) }
      : {};
    if (output.kind === 'none') return { kind: 'none', ...attention };
    // States leave the device in single precision. Round them here too, so that a state has the same distribution now and when it is projected later.
    const wantedStates = rows
      .slice(-output.rows)
      .map((x) => toSinglePrecision(rmsNorm(x, this.#weights.norm, rmsNormEpsilon)));
    if (output.kind === 'states') return { kind: 'states', states: flat(wantedStates), ...attention };
    const logits = wantedStates.map((state) => this.#head(state));
    if (output.changes && logits[0]) changeLogits(logits[0], output.changes, pickedToken);
    const topK = Math.min(output.topK, vocabularySize);
    const draws = output.draws;
    const top = topTokens(logits, draws ? vocabularySize : topK, output.allowed);
    return {
      kind: 'top',
      ...(draws ? drawnTokens(top, draws, topK) : output.tokensOnly ? tokensOnly(top) : top),
      ...(output.states ? { states: flat(wantedStates) } : {}),
      ...attention,
    };
  }

  #logits(states: Float32Array, count: number): Float64Array[] {
    const { hiddenSize } = this.config;
    return Array.from({ length: count }, (_, row) =>
      this.#head(Float64Array.from(states.subarray(row * hiddenSize, (row + 1) * hiddenSize))),
    );
  }

  #linear(weight: Float32Array, x: Float64Array, bias?: Float32Array | null): Float64Array {
    return this.#roundOutput(linear(weight, this.#roundInput(x), bias));
  }

  #head(state: Float64Array): Float64Array {
    const { logitScale, logitSoftcap } = this.config;
    return linear(this.#weights.head, this.#roundInput(state)).map((logit) =>
      softcap(logit * logitScale, logitSoftcap),
    );
  }

  #norm(x: Float64Array, weight: Float32Array | null): Float64Array {
    return weight === null ? x : rmsNorm(x, weight, this.config.rmsNormEpsilon);
  }

  #embed({ inputs, positions }: SequenceInput, picked: readonly number[]): Float64Array[] {
    const { hiddenSize, embeddingScale } = this.config;
    return Array.from(positions, (_, i) => {
      const table = inputs.kind === 'embeds' ? inputs.embeds : this.#weights.embeddings;
      let row = i;
      if (inputs.kind === 'tokens') row = inputs.tokens[i];
      else if (inputs.kind === 'picked') row = picked[inputs.rows[i]];
      const values = Float64Array.from(table.subarray(row * hiddenSize, (row + 1) * hiddenSize));
      return inputs.kind === 'embeds' ? values : scaled(values, embeddingScale);
    });
  }

  #keyValue(layer: LayerWeights, changes: LayerChanges, index: number, x: Float64Array, position: number): KeyValue {
    const key = changes.k_proj(x, this.#linear(layer.key, x, layer.keyBias));
    const value = changes.v_proj(x, this.#linear(layer.value, x, layer.valueBias));
    const round = this.#roundKv;
    // Where `round` is set, it takes the unrounded key.
    this.#normAndRotate(key, layer.keyNorm, index, position, round && asItIs);
    return round ? { key: round(key), value: round(value) } : { key, value };
  }

  /** The attention of input `i`, all heads, over the keys that its mask row shows: context slots first, then the call's own inputs. */
  #attention(
    layer: LayerWeights,
    changes: LayerChanges,
    layerIndex: number,
    { sequence, received }: Passage,
    x: Float64Array,
    i: number,
    newKeyValues: readonly KeyValue[],
  ): Float64Array {
    const { heads, kvHeads, headDim, attentionScale: scale, attentionSoftcap: cap, windows } = this.config;
    const { context, mask, positions } = sequence;
    const window = windows[layerIndex] ?? null;
    const width = context.length + newKeyValues.length;
    const visible: number[] = [];
    for (let j = 0; j < width; j++) {
      const isVisible = mask === 'causal' ? j <= context.length + i : mask[i * width + j] !== 0;
      const position = j < context.length ? this.#pool.positions.at(context[j]) : positions[j - context.length];
      const isInWindow = window === null || positions[i] - position < window;
      if (isVisible && isInWindow) visible.push(j);
    }
    const keyValues = visible.map((j) =>
      j < context.length ? this.#pool.read(layerIndex, context[j]) : newKeyValues[j - context.length],
    );
    const query = changes.q_proj(x, this.#linear(layer.query, x, layer.queryBias));
    this.#normAndRotate(query, layer.queryNorm, layerIndex, positions[i]);
    const joined = new Float64Array(heads * headDim);
    this.#heads(query).forEach((head, h) => {
      const start = Math.floor(h / (heads / kvHeads)) * headDim;
      const keys = keyValues.map(({ key }) => key.subarray(start, start + headDim));
      const values = keyValues.map(({ value }) => value.subarray(start, start + headDim));
      const weights = attentionWeights(head, keys, { scale, cap, sink: layer.sinks?.[h] });
      visible.forEach((j, k) => {
        received[j] += weights[k];
      });
      joined.set(weightedSum(weights, values, headDim), h * headDim);
    });
    return changes.o_proj(joined, this.#linear(layer.output, joined, layer.outputBias));
  }

  #feedForward(layer: LayerWeights, changes: LayerChanges, x: Float64Array): Float64Array {
    const { experts } = this.config;
    const [only] = layer.networks;
    if (experts === null || layer.router === null) return this.#network(only, changes, x);
    const scores = this.#linear(layer.router, x, layer.routerBias);
    const sum = new Float64Array(x.length);
    for (const [expert, weight] of chosenExperts(experts, scores)) {
      const result = this.#network(layer.networks[expert], UNCHANGED, x);
      for (let i = 0; i < sum.length; i++) sum[i] += weight * result[i];
    }
    return sum;
  }

  #network(network: FeedForwardWeights, changes: LayerChanges, x: Float64Array): Float64Array {
    const up = changes.up_proj(x, this.#linear(network.up, x, network.upBias));
    const gate = changes.gate_proj(x, this.#linear(network.gate, x, network.gateBias));
    const inner = gated(this.config, gate, up);
    return changes.down_proj(inner, this.#linear(network.down, inner, network.downBias));
  }

  #heads(row: Float64Array): Float64Array[] {
    const { headDim } = this.config;
    return Array.from({ length: row.length / headDim }, (_, h) => row.subarray(h * headDim, (h + 1) * headDim));
  }

  /** Normalises and rotates the heads of a query or key, in place. */
  #normAndRotate(
    row: Float64Array,
    norm: Float32Array | null,
    layer: number,
    position: number,
    round = this.#roundOutput,
  ): void {
    const isOfRow = this.config.queryKeyNormSpan === 'row';
    if (norm !== null && isOfRow) row.set(this.#norm(row, norm));
    const rotation = this.#rotations[layer];
    for (const head of this.#heads(row)) {
      if (norm !== null && !isOfRow) head.set(this.#norm(head, norm));
      if (rotation) rotate(head, position, rotation);
      head.set(round(head));
    }
  }
}

/** The token that each row picks. */
function picksOf(request: OutputRequest, output: SequenceOutput): number[] {
  if (request.kind !== 'top' || output.kind !== 'top') return [];
  const { topK, tokens, drawn } = output;
  return Array.from({ length: request.rows }, (_, row) => {
    const token = drawn ? drawn[row] : tokens[row * topK];
    return token === NOTHING_DRAWN ? 0 : token;
  });
}

/** Draws from rows that list all their tokens. */
function drawnTokens({ tokens, logProbabilities, topK: size }: TopTokens, draws: readonly Draw[], topK: number) {
  const drawn = Uint32Array.from(draws, (draw, row) => {
    const first = logProbabilities[row * size];
    if (Number.isNaN(first) || first === Number.NEGATIVE_INFINITY) return NOTHING_DRAWN;
    return tokens[row * size + drawPlace(draw, logProbabilities, row * size, size)];
  });
  return { topK, drawn, tokens: new Uint32Array(0), logProbabilities: new Float32Array(0) };
}

/** Applies `changes` to a row's logits. `pickedToken` is the row's input if the batch before picked it. */
function changeLogits(
  logits: Float64Array,
  { tokens, values, frequency, presence }: RowChanges,
  pickedToken: number | undefined,
): void {
  let isPickedChosen = false;
  tokens.forEach((flagged, i) => {
    const token = (flagged & ~CHOSEN_TOKEN) >>> 0;
    logits[token] += values[i];
    if (token === pickedToken && flagged >= CHOSEN_TOKEN) isPickedChosen = true;
  });
  if (pickedToken !== undefined) logits[pickedToken] -= frequency + (isPickedChosen ? 0 : presence);
}

function toSinglePrecision(x: Float64Array): Float64Array {
  return Float64Array.from(Float32Array.from(x));
}

function add(a: Float64Array, b: Float64Array): Float64Array {
  return a.map((value, i) => value + b[i]);
}

function scaled(x: Float64Array, scale: number): Float64Array {
  return scale === 1 ? x : x.map((value) => value * scale);
}

function flat(rows: readonly Float64Array[]): Float32Array {
  const size = rows[0]?.length ?? 0;
  const result = new Float32Array(rows.length * size);
  rows.forEach((row, i) => {
    result.set(row, i * size);
  });
  return result;
}

/** Adds an adapter's change for `x` to the projection of `x`. */
type Change = (x: Float64Array, projected: Float64Array) => Float64Array;

/** An adapter's change to each projection of one layer. */
export type LayerChanges = Readonly<Record<Projection, Change>>;

/** The changes without an adapter: each projection stays as it is. */
export const UNCHANGED = layerOf(() => (_x, projected) => projected);

/** A low-rank adapter as the reference computes it: `projected + scale · B · (A · x)`. */
export class ReferenceAdapter implements DeviceAdapter {
  readonly bytes: number;
  readonly loadMs: number;
  readonly layers: readonly LayerChanges[];

  private constructor(bytes: number, loadMs: number, layers: readonly LayerChanges[]) {
    this.bytes = bytes;
    this.loadMs = loadMs;
    this.layers = layers;
  }

  static read(adapter: LoadedAdapter, layerCount: number): ReferenceAdapter {
    const startedMs = performance.now();
    const layers = Array.from({ length: layerCount }, (_, layer) =>
      layerOf((projection) => {
        const matrices = adapter.read(layer, projection);
        if (matrices === undefined) return UNCHANGED[projection];
        const { a, b } = matrices;
        return (x, projected) => {
          const change = linear(b, linear(a, x));
          return projected.map((value, i) => value + adapter.scale * change[i]);
        };
      }),
    );
    return new ReferenceAdapter(adapter.bytes, performance.now() - startedMs, layers);
  }

  /** @throws InvalidInput when another backend made the adapter */
  static of(adapter: DeviceAdapter | undefined): ReferenceAdapter | undefined {
    if (adapter === undefined || adapter instanceof ReferenceAdapter) return adapter;
    throw new InvalidInput('The adapter was made by another backend.');
  }
}

function layerOf(change: (projection: Projection) => Change): LayerChanges {
  return Object.fromEntries(PROJECTIONS.map((name) => [name, change(name)])) as Record<Projection, Change>;
}

/** All tensors of a model as float32; linear layers are row-major, one row per output. */
export interface Weights {
  readonly embeddings: Float32Array;
  readonly layers: readonly LayerWeights[];
  readonly norm: Float32Array;
  readonly head: Float32Array;
}

export interface LayerWeights {
  readonly inputNorm: Float32Array | null;
  readonly query: Float32Array;
  readonly key: Float32Array;
  readonly value: Float32Array;
  readonly queryBias: Float32Array | null;
  readonly keyBias: Float32Array | null;
  readonly valueBias: Float32Array | null;
  readonly queryNorm: Float32Array | null;
  readonly keyNorm: Float32Array | null;
  readonly sinks: Float32Array | null;
  readonly output: Float32Array;
  readonly outputBias: Float32Array | null;
  readonly attentionOutputNorm: Float32Array | null;
  readonly postNorm: Float32Array | null;
  readonly router: Float32Array | null;
  readonly routerBias: Float32Array | null;
  /** One feed-forward network, or those of all experts. */
  readonly networks: readonly FeedForwardWeights[];
  readonly feedForwardOutputNorm: Float32Array | null;
}

export interface FeedForwardWeights {
  readonly gate: Float32Array;
  readonly gateBias: Float32Array | null;
  readonly up: Float32Array;
  readonly upBias: Float32Array | null;
  readonly down: Float32Array;
  readonly downBias: Float32Array | null;
}

/** Reads a whole model. @throws ModelError `missing-tensor` */
export function readWeights({ config, tensors }: LoadedModel): Weights {
  const embeddings = tensors.read('model.embed_tokens.weight');
  const expected = new Set(expectedTensors(config).map(([name]) => name));
  const layers = Array.from({ length: config.layers }, (_, index): LayerWeights => {
    const nameOf = (name: string) => `model.layers.${index}.${name}`;
    const read = (name: string) => tensors.read(nameOf(name));
    const readIfAny = (name: string) => (expected.has(nameOf(name)) ? read(name) : null);
    const network = (prefix: string): FeedForwardWeights => ({
      gate: read(`${prefix}.gate_proj.weight`),
      gateBias: readIfAny(`${prefix}.gate_proj.bias`),
      up: read(`${prefix}.up_proj.weight`),
      upBias: readIfAny(`${prefix}.up_proj.bias`),
      down: read(`${prefix}.down_proj.weight`),
      downBias: readIfAny(`${prefix}.down_proj.bias`),
    });
    const { experts } = config;
    return {
      inputNorm: readIfAny('input_layernorm.weight'),
      query: read('self_attn.q_proj.weight'),
      key: read('self_attn.k_proj.weight'),
      value: read('self_attn.v_proj.weight'),
      queryBias: readIfAny('self_attn.q_proj.bias'),
      keyBias: readIfAny('self_attn.k_proj.bias'),
      valueBias: readIfAny('self_attn.v_proj.bias'),
      queryNorm: readIfAny('self_attn.q_norm.weight'),
      keyNorm: readIfAny('self_attn.k_norm.weight'),
      sinks: readIfAny('self_attn.sinks'),
      output: read('self_attn.o_proj.weight'),
      outputBias: readIfAny('self_attn.o_proj.bias'),
      attentionOutputNorm: readIfAny('self_attn.output_norm.weight'),
      postNorm: readIfAny(config.norms === 'around' ? 'mlp.input_norm.weight' : 'post_attention_layernorm.weight'),
      router: readIfAny('mlp.router.weight'),
      routerBias: readIfAny('mlp.router.bias'),
      networks:
        experts === null
          ? [network('mlp')]
          : Array.from({ length: experts.count }, (_, expert) => network(`mlp.experts.${expert}`)),
      feedForwardOutputNorm: readIfAny('mlp.output_norm.weight'),
    };
  });
  return {
    embeddings,
    layers,
    norm: tensors.read('model.norm.weight'),
    head: config.tiedEmbeddings ? embeddings : tensors.read('lm_head.weight'),
  };
}
