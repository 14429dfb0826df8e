import type { ModelConfig } from '#gpu-host/models/config.ts';
import { ModelError } from '#gpu-host/models/errors.ts';

/** The traits beyond a plain Llama decoder, each with the test for a model that has it. A backend states which of them it computes. */
const TESTS = {
  'output biases': (config) => config.outputBias,
  'norms on whole rows of queries and keys': (config) => config.queryKeyNorm && config.queryKeyNormSpan === 'row',
  'partly rotated heads': (config) => config.rotaryDim !== config.headDim,
  'rotation of neighbouring pairs': (config) => config.rotaryPairs === 'neighbours',
  'YaRN or longrope scaling': (config) =>
    config.ropeScaling?.type === 'yarn' || config.ropeScaling?.type === 'longrope',
  'rotations by layer': (config) => config.localRopeTheta !== null || config.unrotatedLayers.length > 0,
  'windows by layer': (config) => config.windows.some((window) => window !== null),
  softcaps: (config) => config.attentionSoftcap !== null || config.logitSoftcap !== null,
  'attention sinks': (config) => config.sinks,
  'norms after blocks': (config) => config.norms !== 'before' || config.normOffset !== 0,
  'activations other than SiLU': (config) => config.activation !== 'silu',
  scales: ({ attentionScale, headDim, embeddingScale, residualScale, logitScale }) =>
    attentionScale !== 1 / Math.sqrt(headDim) || embeddingScale !== 1 || residualScale !== 1 || logitScale !== 1,
  experts: (config) => config.experts !== null,
} as const satisfies Readonly<Record<string, (config: ModelConfig) => boolean>>;

export type Trait = keyof typeof TESTS;

export const TRAITS = Object.keys(TESTS) as readonly Trait[];

/** What each backend computes beyond a plain decoder; `reference` and `ggml` have every trait. */
export const ONNX_TRAITS: readonly Trait[] = [
  ...(['output biases', 'norms on whole rows of queries and keys', 'partly rotated heads'] as const),
  ...([
    'rotation of neighbouring pairs',
    'YaRN or longrope scaling',
    'rotations by layer',
    'windows by layer',
  ] as const),
  ...(['softcaps', 'norms after blocks', 'activations other than SiLU', 'scales'] as const),
];
export const CUDA_TRAITS: readonly Trait[] = TRAITS.filter(
  (trait) => trait !== 'attention sinks' && trait !== 'experts',
);

/** The traits of a model that a backend with `supported` ones does not compute. */
export function lackingTraits(config: ModelConfig, supported: readonly Trait[]): readonly Trait[] {
  return TRAITS.filter((trait) => TESTS[trait](config) && !supported.includes(trait));
}

/** @throws ModelError `unsupported-model` that names the traits which the backend lacks */
export function requireTraits(config: ModelConfig, backend: string, supported: readonly Trait[]): void {
  const lacking = lackingTraits(config, supported);
  if (lacking.length === 0) return;
  throw new ModelError(
    'unsupported-model',
    `the backend "${backend}" does not compute this model's ${lacking.join(', ')}`,
    {
      hint: 'choose `backend = "ggml"` or `backend = "auto"` for the model',
    },
  );
}
