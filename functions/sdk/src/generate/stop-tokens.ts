import { detokenize, tokenizeContinuation } from '../context/models.ts';

/** Maximum stop tokens of a run. */
const MAX_STOP_TOKENS = 256;
/** Maximum number of stop strings that are looked up. */
const MAX_STOPS = 64;
/** Maximum length of a stop string that is looked up: hardly any token is longer. */
const MAX_CHARACTERS = 64;

/**
 * Adds to `stopTokens` each stop string that is exactly one token. The device ends a run at a stop token. At a stop string of several tokens, it
 * decodes on until the inferlet or the platform has read the text. Other tokens may contain a stop string, so the caller still searches the text.
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
