/** Source text access of ECMAScript's JSON, which TypeScript's library does not declare. */
const { rawJSON } = JSON as typeof JSON & { readonly rawJSON: (text: string) => unknown };

/**
 * Parses JSON for a later `JSON.stringify`, which then writes every number as the text has it. A number that JavaScript would write in another
 * way, such as an integer above 2^53, becomes an object (`JSON.rawJSON`), so do not check the value or calculate with it.
 *
 * @throws SyntaxError
 */
export function exactJson(text: string): unknown {
  return JSON.parse(text, (_key, value: unknown, context?: { readonly source?: string }) => {
    const source = context?.source;
    return typeof value === 'number' && source !== undefined && source !== String(value) ? rawJSON(source) : value;
  });
}
