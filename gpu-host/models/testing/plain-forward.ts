import type { LoadedModel } from '../load.ts';

/** Pairing of a head's values for the rotation: Hugging Face's halves, or llama2.c's neighbours. */
export type RopePairing = 'half-split' | 'interleaved';

/**
 * A Llama forward pass over one sequence in float64, as plain as possible: the oracle for tests of conversions. It supports no biases, no
 * query and key norms and no scaling, and shares no code with the backends.
 */
export class PlainForward {
  readonly #model: LoadedModel;
  readonly #pairing: RopePairing;
  readonly #weights = new Map<string, Float32Array>();
  readonly #keys: Float64Array[][];
  readonly #values: Float64Array[][];
  #position = 0;

  constructor(model: LoadedModel, pairing: RopePairing = 'half-split') {
    this.#model = model;
    this.#pairing = pairing;
    this.#keys = Array.from({ length: model.config.layers }, () => []);
    this.#values = Array.from({ length: model.config.layers }, () => []);
  }

  /** Appends a token and returns the logits of the next one. */
  next(token: number): Float64Array {
    const { config } = this.#model;
    const { hiddenSize, heads, kvHeads, headDim } = config;
    const embedding = this.#weight('model.embed_tokens.weight');
    const x = Float64Array.from(embedding.subarray(token * hiddenSize, (token + 1) * hiddenSize));
    for (let layer = 0; layer < config.layers; layer++) {
      const name = (suffix: string) => `model.layers.${layer}.${suffix}.weight`;
      const normed = this.#norm(x, name('input_layernorm'));
      const q = this.#linear(normed, name('self_attn.q_proj'));
      const k = this.#linear(normed, name('self_attn.k_proj'));
      this.#rotate(q);
      this.#rotate(k);
      this.#keys[layer]?.push(k);
      this.#values[layer]?.push(this.#linear(normed, name('self_attn.v_proj')));
      const attended = new Float64Array(heads * headDim);
      for (let head = 0; head < heads; head++) {
        const group = Math.floor(head / (heads / kvHeads));
        this.#attend(layer, q.subarray(head * headDim), group * headDim, attended.subarray(head * headDim));
      }
      add(x, this.#linear(attended, name('self_attn.o_proj')));
      const inner = this.#norm(x, name('post_attention_layernorm'));
      const gate = this.#linear(inner, name('mlp.gate_proj'));
      const up = this.#linear(inner, name('mlp.up_proj'));
      add(
        x,
        this.#linear(
          gate.map((g, i) => (g / (1 + Math.exp(-g))) * at(up, i)),
          name('mlp.down_proj'),
        ),
      );
    }
    this.#position++;
    return this.#linear(
      this.#norm(x, 'model.norm.weight'),
      config.tiedEmbeddings ? 'model.embed_tokens.weight' : 'lm_head.weight',
    );
  }

  #attend(layer: number, q: Float64Array, offset: number, out: Float64Array): void {
    const { headDim } = this.#model.config;
    const keys = this.#keys[layer] ?? [];
    const scores = keys.map((key) => {
      let dot = 0;
      for (let i = 0; i < headDim; i++) dot += at(q, i) * at(key, offset + i);
      return dot / Math.sqrt(headDim);
    });
    const largest = Math.max(...scores);
    const exponentials = scores.map((score) => Math.exp(score - largest));
    const sum = exponentials.reduce((a, b) => a + b, 0);
    for (const [slot, value] of (this.#values[layer] ?? []).entries()) {
      const weight = (exponentials[slot] ?? 0) / sum;
      for (let i = 0; i < headDim; i++) out[i] = at(out, i) + weight * at(value, offset + i);
    }
  }

  #rotate(rows: Float64Array): void {
    const { headDim, ropeTheta } = this.#model.config;
    const half = headDim / 2;
    for (let head = 0; head < rows.length; head += headDim) {
      for (let pair = 0; pair < half; pair++) {
        const angle = this.#position / ropeTheta ** ((2 * pair) / headDim);
        const [a, b] =
          this.#pairing === 'half-split' ? [head + pair, head + pair + half] : [head + 2 * pair, head + 2 * pair + 1];
        const [left, right] = [at(rows, a), at(rows, b)];
        rows[a] = left * Math.cos(angle) - right * Math.sin(angle);
        rows[b] = right * Math.cos(angle) + left * Math.sin(angle);
      }
    }
  }

  #linear(x: Float64Array, name: string): Float64Array {
    const weight = this.#weight(name);
    const out = new Float64Array(weight.length / x.length);
    for (let row = 0; row < out.length; row++) {
      let sum = 0;
      for (let column = 0; column < x.length; column++) sum += at(x, column) * (weight[row * x.length + column] ?? 0);
      out[row] = sum;
    }
    return out;
  }

  #norm(x: Float64Array, name: string): Float64Array {
    const weight = this.#weight(name);
    const meanSquare = x.reduce((sum, value) => sum + value * value, 0) / x.length;
    const scale = 1 / Math.sqrt(meanSquare + this.#model.config.rmsNormEpsilon);
    return x.map((value, i) => value * scale * (weight[i] ?? 0));
  }

  #weight(name: string): Float32Array {
    let weight = this.#weights.get(name);
    if (weight === undefined) {
      weight = this.#model.tensors.read(name);
      this.#weights.set(name, weight);
    }
    return weight;
  }
}

/** Index of the largest value: the greedy token. */
export function argmax(values: Float64Array): number {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (at(values, i) > at(values, best)) best = i;
  return best;
}

function at(values: Float64Array, index: number): number {
  return values[index] as number;
}

function add(target: Float64Array, addend: Float64Array): void {
  for (let i = 0; i < target.length; i++) target[i] = at(target, i) + at(addend, i);
}
