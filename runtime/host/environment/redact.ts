/**
 * Takes secrets out of a text: each value becomes `[NAME]`. `cut` says that the text was cut off at its end, so that a value may have lost
 * its rest there.
 */
export type Redact = (text: string, cut?: boolean) => string;

/** For an inferlet without secrets. */
export const redactNothing: Redact = (text) => text;

/** Shorter values stand in any text by chance. */
const MIN_LENGTH = 4;
/** Of a value with several lines (a private key), each line from this length on is taken out by itself. */
const MIN_LINE_LENGTH = 8;

interface Needle {
  readonly name: string;
  /** Without white space. */
  readonly text: string;
}

/**
 * A {@link Redact} for secrets by name. White space between the characters of a value does not hide it: `console.log` puts it between its
 * arguments, and a formatter may break lines. Values are found as they are, and as they stand in JSON.
 */
export function redactor(secrets: ReadonlyMap<string, string>): Redact {
  const needles = [...secrets].flatMap(([name, value]) => needlesOf(name, value));
  if (needles.length === 0) return redactNothing;
  return (text, cut = false) => {
    const { squeezed, places } = squeeze(text);
    const found = needles.flatMap((needle) => occurrences(needle, squeezed, cut));
    return found.length === 0 ? text : replaced(text, places, found);
  };
}

/** The secrets of inferlets that talk to each other: what one was told by another is taken out of its texts, too. */
export class Redactions {
  readonly #all = new Map<string, Redact>();

  /** Adds those of a function version, once. */
  add(version: string, redact: Redact): void {
    if (redact !== redactNothing) this.#all.set(version, redact);
  }

  readonly redact: Redact = (text, cut) => {
    let clean = text;
    for (const each of this.#all.values()) clean = each(clean, cut);
    return clean;
  };
}

function needlesOf(name: string, value: string): Needle[] {
  const lines = value.split(/\r?\n/).filter((line) => line.trim().length >= MIN_LINE_LENGTH);
  const forms = [value, ...lines].flatMap((form) => [form, JSON.stringify(form).slice(1, -1)]);
  const texts = new Set(forms.map((form) => form.replace(/\s+/g, '')));
  return [...texts].filter((text) => text.length >= MIN_LENGTH).map((text) => ({ name, text }));
}

/** A text without its white space, and where each character of it was. */
function squeeze(text: string): { squeezed: string; places: Uint32Array } {
  const places = new Uint32Array(text.length);
  let squeezed = '';
  for (const match of text.matchAll(/\S+/g)) {
    for (let i = 0; i < match[0].length; i++) places[squeezed.length + i] = match.index + i;
    squeezed += match[0];
  }
  return { squeezed, places };
}

/** A part of the squeezed text, its end not included. */
interface Found {
  readonly name: string;
  readonly from: number;
  readonly to: number;
}

function occurrences({ name, text }: Needle, squeezed: string, cut: boolean): Found[] {
  const found: Found[] = [];
  for (let from = squeezed.indexOf(text); from >= 0; from = squeezed.indexOf(text, from + text.length)) {
    found.push({ name, from, to: from + text.length });
  }
  if (cut) {
    for (let length = Math.min(text.length - 1, squeezed.length); length >= MIN_LENGTH; length--) {
      if (!squeezed.endsWith(text.slice(0, length))) continue;
      found.push({ name, from: squeezed.length - length, to: squeezed.length });
      break;
    }
  }
  return found;
}

/** Those that overlap become one, named after the first. */
function replaced(text: string, places: Uint32Array, found: Found[]): string {
  found.sort((a, b) => a.from - b.from || b.to - a.to);
  const parts: string[] = [];
  let at = 0;
  let covered = 0;
  for (const { name, from, to } of found) {
    if (from >= covered) parts.push(text.slice(at, places[from]), `[${name}]`);
    covered = Math.max(covered, to);
    at = (places[covered - 1] ?? 0) + 1;
  }
  parts.push(text.slice(at));
  return parts.join('');
}
