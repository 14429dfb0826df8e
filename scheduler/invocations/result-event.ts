import type { Usage } from './types.ts';

const OUTPUT = '{"output":';
const USAGE = ',"usage":';

/** The data of a `result` event. @param output JSON text */
export const resultData = (output: string, usage: Usage): string =>
  `${OUTPUT}${output}${USAGE}${JSON.stringify(usage)}}`;

/** The output and the usage in the data of a `result` event, as they were written; null for any other data. */
export function partsOf(data: string): { readonly output: string; readonly usage: string } | null {
  // Usage maps names to numbers, so the last match is its beginning.
  const end = data.lastIndexOf(USAGE);
  if (!data.startsWith(OUTPUT) || end < OUTPUT.length) return null;
  return { output: data.slice(OUTPUT.length, end), usage: data.slice(end + USAGE.length, -1) };
}
