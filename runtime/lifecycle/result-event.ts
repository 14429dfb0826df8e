import type { Usage } from '#scheduler/invocations/types.ts';

const OUTPUT = '{"output":';
const USAGE = ',"usage":';

/** The data of a `result` event. @param output JSON text */
export const resultData = (output: string, usage: Usage): string =>
  `${OUTPUT}${output}${USAGE}${JSON.stringify(usage)}}`;

/** The output in the data of a `result` event, as it was written; null when it is no such data. */
export function outputOf(data: string): string | null {
  // Usage holds numbers by name: nothing in it looks like its own beginning.
  const end = data.lastIndexOf(USAGE);
  return data.startsWith(OUTPUT) && end >= OUTPUT.length ? data.slice(OUTPUT.length, end) : null;
}
