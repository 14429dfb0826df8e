/**
 * Takes secrets out of a text: each value becomes `[NAME]`. `cut` says that the text was cut off at its end, so that a value may have lost
 * its rest there.
 */
export type Redact = (text: string, cut?: boolean) => string;

/** For an inferlet without secrets. */
export const redactNothing: Redact = (text) => text;

/** Shorter values stand in any text by chance. */
const MIN_LENGTH = 4;
/** Of a value with several lines (a private key), each line from this length on is taken out by itself, and so many. */
const MIN_LINE_LENGTH = 8;
const MAX_LINES = 64;
/** Values from this length on are found in their encodings, too. */
const MIN_ENCODED_LENGTH = 6;

interface Needle {
  readonly name: string;
  /** Without white space. */
  readonly text: string;
}

/**
 * A {@link Redact} for secrets by name. White space between the characters of a value does not hide it: `console.log` puts it between its
 * arguments, and a formatter may break lines. Values are found as they are, as they stand in JSON and in JSON within JSON, and whole ones in
 * addresses and forms, and in base64 wherever they begin in what was encoded.
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
  const encoded = [...new Set([value, value.trim()])].filter((whole) => whole.length >= MIN_ENCODED_LENGTH);
  const forms = [
    ...[value, ...lines.slice(0, MAX_LINES)].flatMap((form) => [form, inJson(form)]),
    ...encoded.flatMap((whole) => [inJson(inJson(whole)), ...inAddresses(whole), ...inBase64(whole)]),
  ];
  const texts = new Set(forms.map((form) => form.replace(/\s+/g, '')));
  return [...texts].filter((text) => text.length >= MIN_LENGTH).map((text) => ({ name, text }));
}

const inJson = (text: string): string => JSON.stringify(text).slice(1, -1);

/** As `encodeURIComponent` writes it, and as a form does. */
const inAddresses = (text: string): string[] => [
  encodeURIComponent(text),
  new URLSearchParams([['', text]]).toString().slice(1),
];

/**
 * What base64 has of a value whatever stands before and behind it: 6 bits a character, so the value may begin at three places of one, and the
 * characters at its ends may hold bits of others. In both alphabets.
 */
function inBase64(text: string): string[] {
  const bytes = Buffer.from(text, 'utf8');
  return [0, 1, 2].flatMap((before) => {
    const encoded = Buffer.concat([Buffer.alloc(before), bytes]).toString('base64');
    const own = encoded.slice(Math.ceil((before * 8) / 6), Math.floor(((before + bytes.length) * 8) / 6));
    return [own, own.replaceAll('+', '-').replaceAll('/', '_')];
  });
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
    const from = beginningAtEnd(text, squeezed);
    if (from < squeezed.length) found.push({ name, from, to: squeezed.length });
  }
  return found;
}

/** Where the longest beginning of a needle starts that a text ends with; its end when there is none. */
function beginningAtEnd(needle: string, text: string): number {
  const head = needle.slice(0, MIN_LENGTH);
  for (let at = text.indexOf(head, text.length - needle.length + 1); at >= 0; at = text.indexOf(head, at + 1)) {
    if (needle.startsWith(text.slice(at))) return at;
  }
  return text.length;
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
