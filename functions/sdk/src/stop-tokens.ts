import { detokenize, tokenizeContinuation } from './models.ts';

/** Maximum stop tokens of a run. */
const MAX_STOP_TOKENS = 256;
/** Maximum stop strings that are looked up, and their maximum length: hardly any token is longer. */
const MAX_STOPS = 64;
const MAX_CHARACTERS = 64;

/**
 * Adds the token of each stop string that is exactly one token to `stopTokens`. The device ends a run at such a token; without it, the device
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
