import { decode } from '@jridgewell/sourcemap-codec';

/** Maximum places of a script, and sources. The largest bundles have a few hundred thousand places. */
const MAX_PLACES = 1_000_000;
const MAX_SOURCES = 10_000;
const MAX_NAME = 1000;
const MAGIC = Buffer.from('pieplac1');
/** Words of a place: line and column (in bytes) of the script, number of the source, line and column of the source; all from 0. */
const WORDS = 5;
const HEADER_BYTES = MAGIC.length + 8;

/** A place in the author's files, counted from 1. */
export interface Place {
  readonly file: string;
  readonly line: number;
  readonly column: number;
}

/** Says why bytes are no table of places. */
export class PlacesError extends Error {
  override readonly name = 'PlacesError';
}

/**
 * Turns a source map (ECMA-426) into a table that is read by a binary search, so that only a confined process parses the map of a stranger. The
 * table is a magic number, two words (bytes of the names, number of places), the sources' names as JSON, then the places in ascending order. QuickJS
 * counts columns in bytes of UTF-8, a source map in units of UTF-16. Throws PlacesError for a map that is none.
 *
 * @param text the script, whose places the map describes
 */
export function encodePlaces(map: string, text: string): Buffer {
  let value: { sources?: unknown; mappings?: unknown };
  try {
    value = JSON.parse(map) as typeof value;
  } catch {
    throw new PlacesError('the source map is not JSON');
  }
  const { sources, mappings } = value ?? {};
  const isName = (name: unknown): name is string => typeof name === 'string' && name.length <= MAX_NAME;
  if (!Array.isArray(sources) || sources.length > MAX_SOURCES || !sources.every(isName) || typeof mappings !== 'string')
    throw new PlacesError('the source map lists no valid sources or mappings');
  const words: number[] = [];
  const isAscii = /^[\0-\x7f]*$/.test(text);
  const lines = text.split('\n');
  for (const [line, segments] of decode(mappings).entries()) {
    const toBytes = isAscii ? (column: number) => column : byteColumns(lines[line] ?? '');
    for (const [column, source, sourceLine, sourceColumn] of segments) {
      if (source === undefined || sourceLine === undefined || sourceColumn === undefined) continue;
      if (words.length >= MAX_PLACES * WORDS)
        throw new PlacesError(`the source map has more than ${MAX_PLACES} places`);
      words.push(line, toBytes(column), source, sourceLine, sourceColumn);
    }
  }
  const names = Buffer.from(JSON.stringify(sources));
  const head = Buffer.alloc(8);
  head.writeUInt32LE(names.length, 0);
  head.writeUInt32LE(words.length / WORDS, 4);
  const table = Buffer.from(Int32Array.from(words).buffer);
  const bytes = Buffer.concat([MAGIC, head, names, table]);
  // Refuses what a reader would refuse, so that a map with numbers out of order fails at deploy.
  new Places(bytes);
  return bytes;
}

/** Returns a function that turns columns of a line, in ascending order, into columns in bytes. */
function byteColumns(line: string): (column: number) => number {
  let [at, bytes] = [0, 0];
  return (column) => {
    if (column > at) {
      bytes += Buffer.byteLength(line.slice(at, column));
      at = column;
    }
    return bytes;
  };
}

/** A place in a text of the engine, such as a stack: the engine calls a script `<input>`. */
const IN_SCRIPT = /<input>:(\d{1,9}):(\d{1,9})/g;

/** A table of places, read from bytes that an untrusted process may have made. */
export class Places {
  readonly #sources: readonly string[];
  readonly #table: Int32Array;
  readonly #count: number;

  /** @throws PlacesError */
  constructor(data: Uint8Array) {
    const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
    if (bytes.length < HEADER_BYTES || !bytes.subarray(0, MAGIC.length).equals(MAGIC))
      throw new PlacesError('the bytes are no table of places');
    const nameBytes = bytes.readUInt32LE(MAGIC.length);
    this.#count = bytes.readUInt32LE(MAGIC.length + 4);
    const at = HEADER_BYTES + nameBytes;
    if (this.#count > MAX_PLACES || bytes.length !== at + this.#count * WORDS * 4)
      throw new PlacesError('the table of places has another length than it says');
    this.#sources = namesIn(String(bytes.subarray(HEADER_BYTES, at)));
    // A copy, since the words need not be aligned in `data`.
    const table = new Int32Array(Uint8Array.from(bytes.subarray(at)).buffer);
    this.#table = table;
    let [lastLine, lastColumn] = [0, 0];
    for (let word = 0; word < table.length; word += WORDS) {
      const at = (offset: number): number => table[word + offset] ?? -1;
      const [line, column, source] = [at(0), at(1), at(2)];
      const isBehind = line < lastLine || (line === lastLine && column < lastColumn);
      const isOutside = column < 0 || source < 0 || source >= this.#sources.length || at(3) < 0 || at(4) < 0;
      if (isBehind || isOutside)
        throw new PlacesError(`place ${word / WORDS} of the table is out of order or out of its bounds`);
      [lastLine, lastColumn] = [line, column];
    }
  }

  /** Replaces the script's places in a text, such as a stack, by the author's (`src/tool.ts:3:7`). Other places stay. */
  inText(text: string): string {
    return text.replace(IN_SCRIPT, (whole, line: string, column: string) => {
      const place = this.find(Number(line), Number(column));
      return place === null ? whole : `${place.file}:${place.line}:${place.column}`;
    });
  }

  /** The author's place for a place of the script (the column in bytes), both counted from 1; null when no source has it. */
  find(line: number, column: number): Place | null {
    let [from, to] = [0, this.#count];
    while (from < to) {
      const middle = (from + to) >>> 1;
      if (this.#compare(middle, line - 1, column - 1) <= 0) from = middle + 1;
      else to = middle;
    }
    const index = from - 1;
    // A line without places before the column belongs to no source.
    if (index < 0 || this.#word(index, 0) !== line - 1) return null;
    const file = this.#sources[this.#word(index, 2)] ?? '';
    return { file, line: this.#word(index, 3) + 1, column: this.#word(index, 4) + 1 };
  }

  #compare(index: number, line: number, column: number): number {
    return this.#word(index, 0) - line || this.#word(index, 1) - column;
  }

  #word(index: number, word: number): number {
    return this.#table[index * WORDS + word] ?? 0;
  }
}

function namesIn(text: string): readonly string[] {
  try {
    const names = JSON.parse(text) as unknown;
    if (Array.isArray(names) && names.every((name) => typeof name === 'string' && name.length <= MAX_NAME))
      return names;
  } catch {
    // Not JSON: refused below.
  }
  throw new PlacesError('the table of places lists no valid sources');
}
