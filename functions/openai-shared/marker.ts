/**
 * Returns the first token of a marker (the text that begins a call) if that token is special and occurs only in calls. A generated text omits
 * special tokens, so no stop string finds such a marker, even when more text belongs to it (Mistral: `[TOOL_CALLS] [`). The generation must stop
 * at the token instead.
 *
 * @param ids the marker's tokens
 * @param isHidden true for a token that the text omits
 * @param ends tokens that do not reveal a call, because texts without a call begin or end with them, too
 */
export function markerTokenOf(
  [first]: readonly number[],
  isHidden: (token: number) => boolean,
  ends: readonly number[],
): number | undefined {
  return first !== undefined && isHidden(first) && !ends.includes(first) ? first : undefined;
}

/**
 * Returns the texts that reveal a call when any other answer must be JSON. Normally this is the marker alone. If the marker looks like the beginning
 * of JSON (Llama: `{"name": "`), each text also has the name of a function, and the character after the name, since one name may begin another.
 *
 * @param format the model's `CallFormat`: `open` precedes a function's name, `middle` follows it
 */
export function callBeginnings(
  { open, middle, marker }: { readonly open: string; readonly middle: string; readonly marker: string },
  names: readonly string[],
): readonly string[] {
  const isLikeJson = marker === '[' || marker.startsWith('{');
  const afterName = middle.slice(0, 1);
  return isLikeJson ? names.map((name) => open.trimStart() + name + afterName) : [marker];
}
