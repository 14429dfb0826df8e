/**
 * The token that begins a call, if it is a special one. The text omits such a token, so no stop string finds it, even when more text belongs to the
 * marker (Mistral: `[TOOL_CALLS] [`).
 *
 * @param ids the marker's tokens
 * @param ends the tokens that end a text: a model writes them without a call
 */
export function markerTokenOf(
  [first]: readonly number[],
  isHidden: (token: number) => boolean,
  ends: readonly number[],
): number | undefined {
  return first !== undefined && isHidden(first) && !ends.includes(first) ? first : undefined;
}

/**
 * The texts that begin a call when every other answer is JSON. If a call begins like JSON, too (Llama: `{"name": "`), the name of a function
 * tells the two apart.
 */
export function callBeginnings(
  { open, middle, marker }: { readonly open: string; readonly middle: string; readonly marker: string },
  names: readonly string[],
): readonly string[] {
  const isLikeJson = marker === '[' || marker.startsWith('{');
  return isLikeJson ? names.map((name) => open.trimStart() + name + middle.slice(0, 1)) : [marker];
}
