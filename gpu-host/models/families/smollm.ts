import { z } from 'zod';
import { type Family, fieldsOf } from './family.ts';

const INTERVAL = 4;

/** SmolLM 3: every fourth layer has no positions (NoPE). SmolLM 2 is a Llama. */
export const SMOLLM: Family = {
  types: {
    smollm3: {
      num_key_value_heads: 4,
      tie_word_embeddings: true,
      no_rope_layer_interval: INTERVAL,
      rope_theta: 2_000_000,
    },
  },
  traits(file) {
    const { no_rope_layers: rotates, no_rope_layer_interval: interval } = fieldsOf(file, {
      no_rope_layers: z
        .array(z.union([z.literal(0), z.literal(1)]))
        .max(1024)
        .nullish(),
      no_rope_layer_interval: z.int().min(1).max(1024).nullish(),
    });
    const layers = Array.from({ length: file.num_hidden_layers }, (_, layer) => layer);
    const plain = (layer: number) =>
      rotates?.length ? rotates[layer] !== 0 : (layer + 1) % (interval ?? INTERVAL) !== 0;
    return { unrotatedLayers: layers.filter((layer) => !plain(layer)) };
  },
  gguf: [{ architecture: 'smollm3', type: 'smollm3', permuted: true }],
};
