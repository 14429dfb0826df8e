/** Most texts, and most characters of them, in one call of the platform. */
const CALL_TEXTS = 256;
const CALL_CHARACTERS = 262_144;

/** Texts of one call, and the number of those that were cut to fit. */
export interface TextPart {
  readonly texts: string[];
  cut: number;
}

/** Parts that fit one call each, with `more` characters for each text. A text that fills a call loses its end: no model reads that far. */
export function partsOf(all: readonly string[], more: number): TextPart[] {
  const most = Math.max(0, CALL_CHARACTERS - more);
  const parts: TextPart[] = [];
  let [part, characters]: [TextPart, number] = [{ texts: [], cut: 0 }, 0];
  for (const text of all) {
    const kept = text.length > most ? text.slice(0, most) : text;
    const length = kept.length + more;
    if (part.texts.length === CALL_TEXTS || (part.texts.length > 0 && characters + length > CALL_CHARACTERS)) {
      parts.push(part);
      [part, characters] = [{ texts: [], cut: 0 }, 0];
    }
    part.texts.push(kept);
    if (kept !== text) part.cut++;
    characters += length;
  }
  if (part.texts.length > 0 || all.length === 0) parts.push(part);
  return parts;
}
