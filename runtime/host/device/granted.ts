import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import type { VisionConfig } from '#gpu-host/models/vision/config.ts';
import type { EncoderSummary, GpuHostConnection, ModelSummary } from '#gpu-host/protocol/client.ts';
import type { ModelMetadata } from '#wit/generated/host.ts';
import type { GrammarService } from '../../grammar/service.ts';

/** Interfaces that this process serves with a model's tokenizer, whether the device lists them or not. */
const OF_TOKENIZER: readonly string[] = ['tokenize', 'grammar'];

/** Interfaces that a model offers: the device's, and the tokenizer's when the model has one. */
export function traitsOf(model: GrantedModel): string[] {
  const ofDevice = model.summary.traits.filter((trait) => !OF_TOKENIZER.includes(trait) && offers(model, trait));
  return model.tokenizer ? [...ofDevice, ...OF_TOKENIZER] : ofDevice;
}

/** True when a model offers an interface; like `traitsOf`, without making the list. */
export function offers({ summary, tokenizer, vision }: GrantedModel, trait: string): boolean {
  // This process prepares images, which needs the model's directory.
  if (trait === 'input-image' && !vision) return false;
  return OF_TOKENIZER.includes(trait) ? tokenizer !== null : summary.traits.includes(trait);
}

/** A model that an inferlet may use, and the connection to its GPU host. */
export interface GrantedModel {
  readonly summary: ModelSummary;
  readonly connection: GpuHostConnection;
  /** Null when the model's directory has no tokenizer. */
  readonly tokenizer: Tokenizer | null;
  /** Null when this process cannot read the model's directory. */
  readonly metadata: ModelMetadata | null;
  /** The model's image input; null when it takes no images, or this process cannot read its directory. */
  readonly vision: VisionConfig | null;
  /** Compiles and matches grammars over the tokenizer's vocabulary. */
  readonly grammars: Pick<GrammarService, 'compile'>;
}

/** An encoder that an inferlet may use, and the connection to its GPU host. */
export interface GrantedEncoder {
  readonly summary: EncoderSummary;
  readonly connection: GpuHostConnection;
}
