import { z } from 'zod';
import { issueText, ModelError } from '../errors.ts';

/**
 * The part of an encoder's config that only ModernBERT has (Warner et al., 2024): it normalises before each sublayer, rotates queries and
 * keys by their positions (RoPE), has a gated MLP, and in most layers lets a token attend only to near tokens.
 */
export interface ModernBertParts {
  readonly family: 'modernbert';
  /** For each layer: true when a token attends to all tokens, false when it attends only to tokens at most `window` positions away. */
  readonly seesAll: readonly boolean[];
  readonly window: number;
  /** Bases of the rotation: `all` for layers in which a token attends to all tokens, `near` for the other layers. */
  readonly thetas: { readonly all: number; readonly near: number };
  /** The vector that a reranker scores: the first token's state, or the mean of all states. */
  readonly scorePooling: 'first' | 'mean';
}

const mustBeFalse = z.literal(false).default(false);
const theta = z.number().positive().max(1e12);
const rotation = z.looseObject({ rope_type: z.literal('default').default('default'), rope_theta: theta.optional() });

const schema = z.looseObject({
  num_hidden_layers: z.int().min(1).max(1024),
  global_attn_every_n_layers: z.int().min(1).max(1024).default(3),
  layer_types: z.array(z.enum(['full_attention', 'sliding_attention'])).nullish(),
  local_attention: z
    .int()
    .min(1)
    .max(1 << 24)
    .default(128),
  global_rope_theta: theta.default(160_000),
  local_rope_theta: theta.nullable().default(10_000),
  rope_scaling: z.null().optional(),
  rope_parameters: z
    .looseObject({ full_attention: rotation.nullish(), sliding_attention: rotation.nullish() })
    .nullish(),
  classifier_pooling: z.enum(['cls', 'mean']).default('cls'),
  // No published model changes these fields, so other values are refused.
  norm_bias: mustBeFalse,
  attention_bias: mustBeFalse,
  mlp_bias: mustBeFalse,
  classifier_bias: mustBeFalse,
  classifier_activation: z.literal('gelu').default('gelu'),
});

/** Reads ModernBERT's own fields of a `config.json`. @throws ModelError `malformed-config` with the field */
export function parseModernBert(json: unknown): ModernBertParts {
  const parsed = schema.safeParse(json);
  if (!parsed.success) throw new ModelError('malformed-config', `config.json: ${issueText(parsed.error)}`);
  const file = parsed.data;
  const { num_hidden_layers: layers, layer_types: types, rope_parameters: rotations } = file;
  if (types && types.length !== layers) {
    throw new ModelError('malformed-config', `config.json: "layer_types" has ${types.length} of ${layers} layers`);
  }
  const globalInterval = file.global_attn_every_n_layers;
  const globalTheta = rotations?.full_attention?.rope_theta ?? file.global_rope_theta;
  return {
    family: 'modernbert',
    seesAll: Array.from({ length: layers }, (_, i) =>
      types ? types[i] === 'full_attention' : i % globalInterval === 0,
    ),
    window: Math.floor(file.local_attention / 2),
    thetas: {
      all: globalTheta,
      // As in transformers 4, `"local_rope_theta": null` means `global_rope_theta`.
      near: rotations?.sliding_attention?.rope_theta ?? file.local_rope_theta ?? globalTheta,
    },
    scorePooling: file.classifier_pooling === 'cls' ? 'first' : 'mean',
  };
}
