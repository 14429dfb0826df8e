import type { LoadedModel } from '#gpu-host/models/load.ts';

/** All tensors of a model as float32; linear layers are row-major, one row per output. */
export interface Weights {
  readonly embeddings: Float32Array;
  readonly layers: readonly LayerWeights[];
  readonly norm: Float32Array;
  readonly head: Float32Array;
}

export interface LayerWeights {
  readonly inputNorm: Float32Array;
  readonly query: Float32Array;
  readonly key: Float32Array;
  readonly value: Float32Array;
  readonly queryBias: Float32Array | null;
  readonly keyBias: Float32Array | null;
  readonly valueBias: Float32Array | null;
  readonly queryNorm: Float32Array | null;
  readonly keyNorm: Float32Array | null;
  readonly output: Float32Array;
  readonly postNorm: Float32Array;
  readonly gate: Float32Array;
  readonly up: Float32Array;
  readonly down: Float32Array;
}

/** Reads a whole model. @throws ModelError `missing-tensor` */
export function readWeights({ config, tensors }: LoadedModel): Weights {
  const embeddings = tensors.read('model.embed_tokens.weight');
  const layers = Array.from({ length: config.layers }, (_, index): LayerWeights => {
    const read = (name: string) => tensors.read(`model.layers.${index}.${name}`);
    return {
      inputNorm: read('input_layernorm.weight'),
      query: read('self_attn.q_proj.weight'),
      key: read('self_attn.k_proj.weight'),
      value: read('self_attn.v_proj.weight'),
      queryBias: config.attentionBias ? read('self_attn.q_proj.bias') : null,
      keyBias: config.attentionBias ? read('self_attn.k_proj.bias') : null,
      valueBias: config.attentionBias ? read('self_attn.v_proj.bias') : null,
      queryNorm: config.queryKeyNorm ? read('self_attn.q_norm.weight') : null,
      keyNorm: config.queryKeyNorm ? read('self_attn.k_norm.weight') : null,
      output: read('self_attn.o_proj.weight'),
      postNorm: read('post_attention_layernorm.weight'),
      gate: read('mlp.gate_proj.weight'),
      up: read('mlp.up_proj.weight'),
      down: read('mlp.down_proj.weight'),
    };
  });
  return {
    embeddings,
    layers,
    norm: tensors.read('model.norm.weight'),
    head: config.tiedEmbeddings ? embeddings : tensors.read('lm_head.weight'),
  };
}
