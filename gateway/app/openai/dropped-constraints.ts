import { JsonText } from '../http/json.ts';

/** The header that names the keywords of tools' schemas that did not constrain the answer, such as `weather#/properties/city/pattern`. */
const HEADER = 'x-pie-dropped-constraints';
/** The member by which a bundled function reports these keywords, in its result or in its first message. Clients do not see it. */
const MEMBER = 'x_pie_dropped_constraints';
const MEMBER_TEXT = `"${MEMBER}":`;
/** Maximum characters of an output that is searched for the member. A tenant's own function may write any output; those of the platform are shorter. */
const MAX_OUTPUT = 1_048_576;
/** Maximum characters of the header. */
const MAX_HEADER = 1024;

/** Divides a function's output into the header and the output without the member. */
export function withoutDropped(output: unknown): {
  readonly output: unknown;
  readonly headers: Record<string, string>;
} {
  if (output instanceof JsonText && !output.text.includes(MEMBER_TEXT)) return { output, headers: {} };
  const value = output instanceof JsonText ? output.smallValue(MAX_OUTPUT) : output;
  if (typeof value !== 'object' || value === null || !(MEMBER in value)) return { output, headers: {} };
  const { [MEMBER]: dropped, ...rest } = value;
  return { output: rest, headers: headersOf(dropped) };
}

/** The header that a message of a stream reports; null for a message of the answer. */
export function droppedInMessage(json: string): Record<string, string> | null {
  return json.startsWith(`{${MEMBER_TEXT}`) ? withoutDropped(new JsonText(json)).headers : null;
}

function headersOf(dropped: unknown): Record<string, string> {
  if (!Array.isArray(dropped) || dropped.length === 0) return {};
  // Headers are ASCII, and a comma separates the places.
  const places = dropped.map((place) => encodeURI(String(place).toWellFormed()).replaceAll(',', '%2C'));
  const text = places.join(', ');
  return { [HEADER]: text.length > MAX_HEADER ? `${text.slice(0, MAX_HEADER)}...` : text };
}
