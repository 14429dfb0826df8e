import { z } from 'zod';
import { ENCODER_KIND_CASES } from '#wit/generated/host.ts';
import { ENCODER_TYPES } from './encoder/config.ts';

/** Uses of a model: text generation, vectors of texts, or scores of pairs. */
export const MODEL_KINDS = ['causal', ...ENCODER_KIND_CASES] as const;
export type ModelKind = (typeof MODEL_KINDS)[number];

const schema = z.looseObject({
  model_type: z.string().optional().catch(undefined),
  architectures: z.array(z.string()).default([]).catch([]),
});

/** The kind of a model whose use the operator did not state, by its parsed `config.json`. Throws for JSON that is no object. */
export function kindOf(config: unknown): ModelKind {
  const { model_type: type, architectures } = schema.parse(config);
  if (!(ENCODER_TYPES as readonly (string | undefined)[]).includes(type)) return 'causal';
  return architectures.some((name) => name.endsWith('ForSequenceClassification')) ? 'reranker' : 'embedding';
}
