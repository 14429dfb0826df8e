import type { GrantedModel } from './inferlet.ts';

/** Interfaces that are answered from a model's tokenizer, in this process: a device's word does not count for them. */
const OF_TOKENIZER: readonly string[] = ['tokenize', 'grammar'];

/** Interfaces that a model offers: the device's, and those of its tokenizer when it has one. */
export function traitsOf(model: GrantedModel): string[] {
  const ofDevice = model.summary.traits.filter((trait) => !OF_TOKENIZER.includes(trait) && offers(model, trait));
  return model.tokenizer ? [...ofDevice, ...OF_TOKENIZER] : ofDevice;
}

/** Whether a model offers an interface; as `traitsOf`, without making the list. */
export function offers({ summary, tokenizer, vision }: GrantedModel, trait: string): boolean {
  // Pictures are prepared here, as the model's directory says.
  if (trait === 'input-image' && !vision) return false;
  return OF_TOKENIZER.includes(trait) ? tokenizer !== null : summary.traits.includes(trait);
}
