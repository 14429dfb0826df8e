import type { Family, GgufForm } from './family.ts';
import { GEMMA } from './gemma.ts';
import { GLM } from './glm.ts';
import { GPT_OSS } from './gpt-oss.ts';
import { GRANITE } from './granite.ts';
import { LLAMA } from './llama.ts';
import { OLMO } from './olmo.ts';
import { PHI } from './phi.ts';
import { QWEN } from './qwen.ts';
import { SMOLLM } from './smollm.ts';

const FAMILIES: readonly Family[] = [LLAMA, QWEN, GEMMA, PHI, GPT_OSS, SMOLLM, OLMO, GRANITE, GLM];

/** The `model_type`s that Pie knows. */
export const MODEL_TYPES: readonly string[] = FAMILIES.flatMap(({ types }) => Object.keys(types));

/** The architectures of GGUF files that Pie knows. */
export const ARCHITECTURES: readonly string[] = FAMILIES.flatMap(({ gguf = [] }) =>
  gguf.map(({ architecture }) => architecture),
);

/** The family of a `model_type`; undefined when Pie does not know it. */
export function familyOfType(type: string): Family | undefined {
  return FAMILIES.find(({ types }) => Object.hasOwn(types, type));
}

/** The form that an architecture of GGUF has; undefined when Pie does not know it. */
export function ggufForm(architecture: unknown): GgufForm | undefined {
  return FAMILIES.flatMap(({ gguf = [] }) => gguf).find((form) => form.architecture === architecture);
}
