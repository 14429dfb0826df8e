/** Traits that each trait builds on; a trait that is not listed builds on none. */
const SUPERTRAITS: Readonly<Record<string, readonly string[]>> = {
  forward: ['allocate'],
  'output-text': ['allocate'],
  'input-text': ['allocate', 'forward'],
  tokenize: ['input-text'],
  fused: ['forward', 'input-text', 'output-text'],
  penalties: ['fused'],
  introspect: ['forward'],
  'kv-files': ['forward', 'allocate'],
  'input-image': ['allocate', 'forward'],
  adapter: ['forward', 'fused'],
};

/** A model claims a trait that it cannot offer. */
export class TraitError extends Error {
  override readonly name = 'TraitError';
}

/**
 * Checks that a model claims, with each trait, also the traits that this trait builds on.
 * @throws TraitError naming the model, each such trait and the missing ones.
 */
export function checkTraits(model: string, traits: readonly string[]): void {
  const claimed = new Set(traits);
  const faults = traits.flatMap((trait) => {
    const missing = (SUPERTRAITS[trait] ?? []).filter((needed) => !claimed.has(needed));
    return missing.length > 0 ? [`${trait} needs ${missing.join(' and ')}`] : [];
  });
  if (faults.length > 0)
    throw new TraitError(`the model ${model} claims traits without what they need: ${faults.join('; ')}`);
}
