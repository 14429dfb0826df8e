import type { GrantedModel } from './inferlet.ts';

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
