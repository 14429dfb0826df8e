/** What each trait of a model needs; a trait that is not named here needs none. */
const SUPERTRAITS: Readonly<Record<string, readonly string[]>> = {
  forward: ['allocate'],
  'output-text': ['allocate'],
  'input-text': ['allocate', 'forward'],
  tokenize: ['input-text'],
  fused: ['forward', 'input-text', 'output-text'],
  introspect: ['forward'],
  'kv-files': ['forward', 'allocate'],
  'input-image': ['allocate', 'forward'],
  adapter: ['forward', 'fused'],
};

/** A model claims what it cannot offer. */
export class TraitError extends Error {
  override readonly name = 'TraitError';
}

/**
 * Checks that a model which claims a trait claims what that trait builds on.
 * @throws TraitError naming the model, each such trait and what is missing.
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
