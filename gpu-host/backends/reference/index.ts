import { kvSize, type ModelConfig } from '#gpu-host/models/config.ts';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import type { Backend, SequenceInput, SequenceOutput, TopTokens } from '../backend.ts';
import { checkCopy, checkSequence, checkStates } from '../check.ts';
import { rotaryFrequencies } from '../rotary.ts';
import { attend, linear, rmsNorm, rotate, silu, topTokens } from './math.ts';
import { type LayerWeights, readWeights, type Weights } from './weights.ts';

/**
 * The oracle: every Llama-family model in plain float64 TypeScript, one row at a time, slow and obviously right.
 * What the other backends compute is held against it.
 */
export async function createReferenceBackend(
  model: LoadedModel,
  options: { readonly pageSize: number; readonly pageCount: number },
): Promise<Backend> {
  return new ReferenceBackend(model.config, readWeights(model), options.pageSize, options.pageCount);
}

/** Key and value of one input in one layer, `kvHeads × headDim` each; keys are rotated. */
interface KeyValue {
  readonly key: Float64Array;
  readonly value: Float64Array;
}

class ReferenceBackend implements Backend {
  readonly name = 'reference';
  readonly config: ModelConfig;
  readonly pageSize: number;
  readonly pageCount: number;
  readonly #weights: Weights;
  readonly #frequencies: Float64Array;
  /** `pool[layer][slot]`; undefined until first written. */
  readonly #pool: (KeyValue | undefined)[][];

  constructor(config: ModelConfig, weights: Weights, pageSize: number, pageCount: number) {
    this.config = config;
    this.pageSize = pageSize;
    this.pageCount = pageCount;
    this.#weights = weights;
    this.#frequencies = rotaryFrequencies(config);
    this.#pool = weights.layers.map(() => new Array(pageSize * pageCount));
  }

  async forward(batch: readonly SequenceInput[]): Promise<readonly SequenceOutput[]> {
    for (const sequence of batch) checkSequence(this.config, this.pageSize * this.pageCount, sequence);
    return batch.map((sequence) => this.#forwardOne(sequence));
  }

  async project(states: Float32Array, count: number, topK: number): Promise<TopTokens> {
    const { hiddenSize, vocabularySize } = this.config;
    checkStates(this.config, states, count);
    const logits: Float64Array[] = [];
    for (let row = 0; row < count; row++) {
      const state = Float64Array.from(states.subarray(row * hiddenSize, (row + 1) * hiddenSize));
      logits.push(linear(this.#weights.head, state));
    }
    return topTokens(logits, Math.min(topK, vocabularySize));
  }

  copySlots(sources: Uint32Array, destinations: Uint32Array): void {
    checkCopy(this.pageSize * this.pageCount, sources, destinations);
    for (const layer of this.#pool) {
      const read = Array.from(sources, (slot) => layer[slot]);
      destinations.forEach((slot, i) => {
        layer[slot] = read[i];
      });
    }
  }

  async dispose(): Promise<void> {}

  #forwardOne(sequence: SequenceInput): SequenceOutput {
    const { hiddenSize, rmsNormEpsilon, vocabularySize } = this.config;
    const { positions, writes, output } = sequence;
    let rows = this.#embed(sequence);
    this.#weights.layers.forEach((layer, index) => {
      const normed = rows.map((x) => rmsNorm(x, layer.inputNorm, rmsNormEpsilon));
      const fresh = normed.map((x, i) => this.#keyValue(layer, x, positions[i]));
      const attended = normed.map((x, i) => this.#attention(layer, index, sequence, x, i, fresh));
      rows = rows.map((x, i) => add(x, attended[i]));
      rows = rows.map((x) => add(x, feedForward(layer, rmsNorm(x, layer.postNorm, rmsNormEpsilon))));
      writes.forEach((slot, i) => {
        this.#pool[index][slot] = fresh[i];
      });
    });
    if (output.kind === 'none') return { kind: 'none' };
    const states = rows.slice(-output.rows).map((x) => rmsNorm(x, this.#weights.norm, rmsNormEpsilon));
    if (output.kind === 'top') {
      const logits = states.map((state) => linear(this.#weights.head, state));
      const top = topTokens(logits, Math.min(output.topK, vocabularySize));
      return { kind: 'top', ...top, ...(output.tokensOnly ? { logProbabilities: new Float32Array(0) } : {}) };
    }
    const flat = new Float32Array(states.length * hiddenSize);
    states.forEach((state, i) => {
      flat.set(state, i * hiddenSize);
    });
    return { kind: 'states', states: flat };
  }

  #embed({ inputs, positions }: SequenceInput): Float64Array[] {
    const { hiddenSize } = this.config;
    return Array.from(positions, (_, i) => {
      const table = inputs.kind === 'tokens' ? this.#weights.embeddings : inputs.embeds;
      const row = inputs.kind === 'tokens' ? inputs.tokens[i] : i;
      return Float64Array.from(table.subarray(row * hiddenSize, (row + 1) * hiddenSize));
    });
  }

  #keyValue(layer: LayerWeights, x: Float64Array, position: number): KeyValue {
    const key = linear(layer.key, x, layer.keyBias);
    for (const head of this.#heads(key)) this.#normAndRotate(head, layer.keyNorm, position);
    return { key, value: linear(layer.value, x, layer.valueBias) };
  }

  /** All heads of input `i` over what its mask row shows: context slots first, then the call's own inputs. */
  #attention(
    layer: LayerWeights,
    layerIndex: number,
    sequence: SequenceInput,
    x: Float64Array,
    i: number,
    fresh: readonly KeyValue[],
  ): Float64Array {
    const { heads, kvHeads, headDim } = this.config;
    const { context, mask, positions } = sequence;
    const visible: KeyValue[] = [];
    const width = context.length + fresh.length;
    for (let j = 0; j < width; j++) {
      if (mask === 'causal' ? j > context.length + i : mask[i * width + j] === 0) continue;
      visible.push(j < context.length ? this.#read(layerIndex, context[j]) : fresh[j - context.length]);
    }
    const query = linear(layer.query, x, layer.queryBias);
    const joined = new Float64Array(heads * headDim);
    this.#heads(query).forEach((head, h) => {
      this.#normAndRotate(head, layer.queryNorm, positions[i]);
      const start = Math.floor(h / (heads / kvHeads)) * headDim;
      const keys = visible.map((slot) => slot.key.subarray(start, start + headDim));
      const values = visible.map((slot) => slot.value.subarray(start, start + headDim));
      joined.set(attend(head, keys, values), h * headDim);
    });
    return linear(layer.output, joined);
  }

  #read(layer: number, slot: number): KeyValue {
    const size = kvSize(this.config);
    return this.#pool[layer][slot] ?? { key: new Float64Array(size), value: new Float64Array(size) };
  }

  #heads(row: Float64Array): Float64Array[] {
    const { headDim } = this.config;
    return Array.from({ length: row.length / headDim }, (_, h) => row.subarray(h * headDim, (h + 1) * headDim));
  }

  #normAndRotate(head: Float64Array, norm: Float32Array | null, position: number): void {
    if (norm !== null) head.set(rmsNorm(head, norm, this.config.rmsNormEpsilon));
    rotate(head, position, this.#frequencies);
  }
}

function feedForward(layer: LayerWeights, x: Float64Array): Float64Array {
  const up = linear(layer.up, x);
  const gated = linear(layer.gate, x).map((value, i) => silu(value) * up[i]);
  return linear(layer.down, gated);
}

function add(a: Float64Array, b: Float64Array): Float64Array {
  return a.map((value, i) => value + b[i]);
}
