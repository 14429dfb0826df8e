/**
 * Removes secrets from a text: each value becomes `[NAME]`. With `cut`, the text was cut at its end, so the beginning of a value there is
 * removed, too.
 */
export type Redact = (text: string, cut?: boolean) => string;

/** The {@link Redact} of an inferlet without secrets. */
export const redactNothing: Redact = (text) => text;

/** Shorter values are not removed: any text has them by chance. */
const MIN_LENGTH = 4;
/** Each of the first `MAX_LINES` lines with at least this length of a multi-line value (a private key) is removed on its own, too. */
const MIN_LINE_LENGTH = 8;
const MAX_LINES = 64;
/** Values of at least this length are found in their encodings, too. */
const MIN_ENCODED_LENGTH = 6;

interface Needle {
  readonly name: string;
  /** The form to find, without white space. */
  readonly text: string;
}

/**
 * A {@link Redact} for secrets by name. White space between the characters of a value does not hide it: `console.log` puts spaces between
 * its arguments, and a formatter may break lines. Values are found verbatim and as JSON strings. Whole values are also found in JSON within
 * JSON, in URLs and forms, and in base64 at any offset of the encoded data.
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

/** The secrets of inferlets that talk to each other: an inferlet's texts are cleared of the others' secrets, too. */
export class Redactions {
  readonly #all = new Map<string, Redact>();

  /** Adds the secrets of a function version, once. */
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
  const encoded = [...new Set([value, value.trim()])].filter((whole) => whole.length >= MIN_ENCODED_LENGTH);
  const forms = [
    ...[value, ...lines.slice(0, MAX_LINES)].flatMap((form) => [form, inJson(form)]),
    ...encoded.flatMap((whole) => [inJson(inJson(whole)), ...inAddresses(whole), ...inBase64(whole)]),
  ];
  const texts = new Set(forms.map((form) => form.replace(/\s+/g, '')));
  return [...texts].filter((text) => text.length >= MIN_LENGTH).map((text) => ({ name, text }));
}

const inJson = (text: string): string => JSON.stringify(text).slice(1, -1);

/** The text as `encodeURIComponent` writes it, and as a form does. */
const inAddresses = (text: string): string[] => [
  encodeURIComponent(text),
  new URLSearchParams([['', text]]).toString().slice(1),
];

/**
 * The base64 characters that depend on the value alone, for each of the three alignments and both alphabets. A base64 character has 6 bits,
 * so the characters at the ends of a value may hold bits of its neighbours; those are left out.
 */
function inBase64(text: string): string[] {
  const bytes = Buffer.from(text, 'utf8');
  return [0, 1, 2].flatMap((before) => {
    const encoded = Buffer.concat([Buffer.alloc(before), bytes]).toString('base64');
    const own = encoded.slice(Math.ceil((before * 8) / 6), Math.floor(((before + bytes.length) * 8) / 6));
    return [own, own.replaceAll('+', '-').replaceAll('/', '_')];
  });
}

/** Removes white space from a text; `places` has the original index of each remaining character. */
function squeeze(text: string): { squeezed: string; places: Uint32Array } {
  const places = new Uint32Array(text.length);
  let squeezed = '';
  for (const match of text.matchAll(/\S+/g)) {
    for (let i = 0; i < match[0].length; i++) places[squeezed.length + i] = match.index + i;
    squeezed += match[0];
  }
  return { squeezed, places };
}

/** A range of the squeezed text; `to` is exclusive. */
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
    const from = beginningAtEnd(text, squeezed);
    if (from < squeezed.length) found.push({ name, from, to: squeezed.length });
  }
  return found;
}

/** Start of the longest prefix of the needle that the text ends with; the text's length when there is none. */
function beginningAtEnd(needle: string, text: string): number {
  const head = needle.slice(0, MIN_LENGTH);
  for (let at = text.indexOf(head, text.length - needle.length + 1); at >= 0; at = text.indexOf(head, at + 1)) {
    if (needle.startsWith(text.slice(at))) return at;
  }
  return text.length;
}

/** Replaces the found ranges; overlapping ranges become one, named after the first. */
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
