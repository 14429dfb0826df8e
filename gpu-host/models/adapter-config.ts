import { z } from 'zod';
import { issueText, ModelError } from './errors.ts';

/** The projections of a decoder layer that an adapter may change, in the order of the forward pass. */
export const PROJECTIONS = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'] as const;
export type Projection = (typeof PROJECTIONS)[number];

/** Parameters of a low-rank adapter that a backend needs, read from the `adapter_config.json` of Hugging Face's PEFT. */
export interface AdapterConfig {
  readonly rank: number;
  /** Factor by which the backend multiplies `B · A`, the product of the low-rank matrices, before it adds the product to a projection's matrix. */
  readonly scale: number;
  /** The projections that the adapter changes, in every layer. */
  readonly targets: readonly Projection[];
}

/** Far above any real rank. The bound keeps products of sizes exact. */
const MAX_RANK = 65_536;

const configSchema = z.looseObject({
  peft_type: z.string(),
  r: z.int().min(1).max(MAX_RANK),
  lora_alpha: z.number(),
  use_rslora: z.boolean().nullish(),
  target_modules: z.union([z.array(z.string()), z.string()]),
  bias: z.string().nullish(),
  init_lora_weights: z.union([z.boolean(), z.string()]).nullish(),
});

/** Settings that change the computation, each with the text of its refusal. */
const UNSUPPORTED: Readonly<Record<string, string>> = {
  use_dora: 'DoRA is not supported',
  use_qalora: 'QALoRA is not supported',
  lora_bias: 'biases of the low-rank matrices are not supported',
  modules_to_save: 'whole modules that were trained beside the low-rank matrices are not supported',
  trainable_token_indices: 'trained embeddings are not supported',
  target_parameters: 'parameters that are not projections are not supported',
  rank_pattern: 'ranks that differ by module are not supported',
  alpha_pattern: 'scales that differ by module are not supported',
  layers_to_transform: 'an adapter of some layers only is not supported',
  exclude_modules: 'an adapter that leaves modules out is not supported',
  layer_replication: 'repeated layers are not supported',
  alora_invocation_tokens: 'an adapter that begins inside a text is not supported',
  fan_in_fan_out: 'transposed matrices are not supported',
};

/** Initialisations that leave the model's own weights unchanged. */
const PLAIN_INITIALISATIONS: readonly unknown[] = [undefined, null, true, false, 'gaussian', 'eva', 'orthogonal'];

/**
 * Reads the parsed JSON of an `adapter_config.json`. The scale is `lora_alpha / r` (Hu et al., LoRA, 2021, section 4.1), or
 * `lora_alpha / √r` with `use_rslora` (Kalajdzievski, 2023).
 *
 * @throws ModelError `malformed-config` with the field, `unsupported-adapter` when the backends do not implement the adapter's computation.
 */
export function parseAdapterConfig(json: unknown): AdapterConfig {
  const parsed = configSchema.safeParse(json);
  if (!parsed.success) throw new ModelError('malformed-config', `adapter_config.json: ${issueText(parsed.error)}`);
  const file = parsed.data;
  const { peft_type: type, r: rank, lora_alpha: alpha, bias, init_lora_weights: initialisation } = file;
  if (type !== 'LORA') throw refused(`an adapter of type "${type}" is not supported`);
  for (const [field, text] of Object.entries(UNSUPPORTED)) if (isSet(file[field])) throw refused(`"${field}": ${text}`);
  if (bias && bias !== 'none') throw refused(`"bias": trained biases ("${bias}") are not supported`);
  if (!PLAIN_INITIALISATIONS.includes(initialisation)) {
    const hint = 'save the adapter as a plain LoRA (path_initial_model_for_weight_conversion of PEFT)';
    throw refused(
      `"init_lora_weights": "${initialisation}" changes the model's own weights, which is not supported`,
      hint,
    );
  }
  return { rank, scale: alpha / (file.use_rslora ? Math.sqrt(rank) : rank), targets: targetsOf(file.target_modules) };
}

function targetsOf(modules: readonly string[] | string): readonly Projection[] {
  if (typeof modules === 'string') {
    throw refused(
      `"target_modules": the pattern "${modules}" is not supported`,
      `name projections: ${PROJECTION_NAMES}`,
    );
  }
  if (modules.length === 0) throw refused('"target_modules" is empty: the adapter changes nothing');
  const unknown = modules.find((name) => !(PROJECTIONS as readonly string[]).includes(name));
  if (unknown !== undefined)
    throw refused(`"target_modules": "${unknown}" is not supported`, `supported: ${PROJECTION_NAMES}`);
  return PROJECTIONS.filter((name) => modules.includes(name));
}

const PROJECTION_NAMES = PROJECTIONS.join(', ');

/** True when a setting has an effect: undefined, null, false, and empty lists or objects have none. */
function isSet(value: unknown): boolean {
  if (value === undefined || value === null || value === false) return false;
  return typeof value !== 'object' || Object.keys(value).length > 0;
}

function refused(what: string, hint?: string): ModelError {
  return new ModelError('unsupported-adapter', `adapter_config.json: ${what}`, hint === undefined ? {} : { hint });
}
