import type { Forced } from '../messages.ts';
import type { Place, Places } from './places.ts';
import type { TokenTree } from './token-tree.ts';

/** Maximum bytes of one answer. A longer forced text comes in several answers. */
const MAX_BYTES = 2048;

/** Maximum number of offsets in `Forced.reaching`: each costs the caller a tokenization. With more offsets, no forced text is reported. */
const MAX_REACHING = 8;

export const NOT_FORCED: Forced = { bytes: new Uint8Array(0), reaching: [] };

/** The text that must come at a place, and the offsets from which a token may reach past the text's end. */
export function forcedAt(place: Place, places: Places, tree: TokenTree): Forced {
  const bytes: number[] = [];
  /** The place before each byte, and the place after the last one. */
  const path = [place];
  for (let at = place; bytes.length < MAX_BYTES; ) {
    const byte = places.only(at);
    const nextPlace = byte === undefined ? null : places.after(at, byte);
    if (byte === undefined || nextPlace === null) break;
    bytes.push(byte);
    path.push(nextPlace);
    at = nextPlace;
  }
  const end = wholeCharacters(bytes);
  const lastPlace = path[end];
  if (end === 0 || lastPlace === undefined) return NOT_FORCED;
  const text = Uint8Array.from(bytes.slice(0, end));
  const reaching: number[] = [];
  // A token that reaches past the end begins fewer than `longest` bytes before it.
  for (let from = Math.max(0, end - tree.longest + 1); from < end; from += 1) {
    if (tree.reaches(places, text.subarray(from), lastPlace)) reaching.push(from);
  }
  return reaching.length > MAX_REACHING ? NOT_FORCED : { bytes: text, reaching };
}

/** Number of bytes up to the end of the last whole character; 0 when the bytes begin within a character. */
function wholeCharacters(bytes: readonly number[]): number {
  if (isContinuation(bytes[0])) return 0;
  let lead = bytes.length - 1;
  while (lead > 0 && isContinuation(bytes[lead])) lead -= 1;
  return lead >= 0 && bytes.length - lead < lengthOf(bytes[lead] ?? 0) ? lead : bytes.length;
}

const isContinuation = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80;

/** Number of bytes of the character whose first byte is `lead`. */
function lengthOf(lead: number): number {
  if (lead < 0x80) return 1;
  if (lead < 0xe0) return 2;
  return lead < 0xf0 ? 3 : 4;
}
