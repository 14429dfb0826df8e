import { detokenize, tokenizeContinuation } from './models.ts';

/** Most stop tokens of a run. */
const MAX_STOP_TOKENS = 256;
/** Most stop strings for which a token is looked for, and the longest one: hardly any token is longer. */
const MAX_STOPS = 64;
const MAX_CHARACTERS = 64;

/**
 * `stopTokens`, and for each stop string that one token spells, this token: a run then ends with it on the device, which otherwise decodes
 * on until the inferlet or the platform has read the text. Other tokens may contain a stop string, so the text must be searched all the same.
 */
export function withStopStrings(stopTokens: readonly number[], stops: readonly string[], model: string): number[] {
  const all = new Set(stopTokens);
  for (const stop of stops.slice(0, MAX_STOPS)) {
    if (all.size >= MAX_STOP_TOKENS) break;
    if (stop.length > MAX_CHARACTERS) continue;
    const [token, ...more] = tokenizeContinuation(stop, { model });
    if (token !== undefined && more.length === 0 && detokenize([token], { model }) === stop) all.add(token);
  }
  return [...all];
}
