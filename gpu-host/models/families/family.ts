import { z } from 'zod';
import type { ConfigFile, Traits } from '../config.ts';
import type { MetadataValue } from '../convert/gguf/header.ts';
import { issueText, ModelError } from '../errors.ts';

/** A family of models: what its files say, in the words of {@link Traits}. */
export interface Family {
  /** The `model_type`s of its configurations, each with the values that transformers takes for absent fields. */
  readonly types: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /** The traits in which a configuration differs from a plain Llama decoder. @throws ModelError `malformed-config`, `unsupported-model` */
  traits?(file: ConfigFile): Partial<Traits>;
  /** Names in Hugging Face's checkpoints, where they differ from ours. */
  readonly names?: StoredNames;
  /** Its forms in GGUF files. */
  readonly gguf?: readonly GgufForm[];
}

/** A family's form in GGUF files. */
export interface GgufForm {
  readonly architecture: string;
  /** The `model_type` of the configuration that a file implies. */
  readonly type: string;
  /** Fields of the configuration beyond those that all architectures share. `key` reads the architecture's own keys. */
  config?(key: (name: string) => MetadataValue | undefined): Record<string, unknown>;
  /** Names in the file, where they differ from those that all architectures share. */
  readonly names?: StoredNames;
  /** True when the file orders the rows of query and key heads for a rotation of neighbouring pairs, other than Hugging Face's. */
  readonly permuted?: boolean;
  /** True when the file has 1 added to weights of norms that Hugging Face's checkpoint stores as differences from 1. */
  readonly addsOneToNorms?: boolean;
}

/** How files name the modules of a layer. Names are those after `model.layers.N.`, without `.weight` and `.bias`. */
export interface StoredNames {
  /** Our name → the file's name. */
  readonly modules?: Readonly<Record<string, string>>;
  /** Linear layers that the file stores as one matrix: the file's name → our names, in the order of the rows. */
  readonly fused?: Readonly<Record<string, readonly string[]>>;
}

/** Reads further fields of a configuration. @throws ModelError `malformed-config` with the field */
export function fieldsOf<Shape extends z.ZodRawShape>(file: ConfigFile, shape: Shape): z.infer<z.ZodObject<Shape>> {
  const parsed = z.object(shape).safeParse(file);
  if (!parsed.success) throw new ModelError('malformed-config', `config.json: ${issueText(parsed.error)}`);
  return parsed.data;
}

/** @throws ModelError `unsupported-model`, always */
export function refuse(field: string, what: string): never {
  throw new ModelError('unsupported-model', `config.json: "${field}": ${what}`);
}

/** The window of each layer, from a rule or from the file's `layer_types`. */
export function windowsOf(
  file: ConfigFile,
  window: number | null | undefined,
  slides: (layer: number) => boolean,
): readonly (number | null)[] {
  const { num_hidden_layers: layers, layer_types: types } = file;
  if (types && types.length !== layers)
    throw new ModelError('malformed-config', `config.json: "layer_types": ${types.length} types for ${layers} layers`);
  if (window === null || window === undefined) return [];
  return Array.from({ length: layers }, (_, layer) =>
    (types ? types[layer] === 'sliding_attention' : slides(layer)) ? window : null,
  );
}

export const fraction = z.number().gt(0).max(1);
export const scale = z.number().positive().max(1e6);
