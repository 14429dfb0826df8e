import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { Engine } from '../matching/engine.ts';
import type { Reply } from '../messages.ts';
import { translate } from '../translate/source.ts';
import { vocabularyFrom } from './vocabularies.ts';

const SUITE = path.join(import.meta.dirname, '../fixtures/json-schema-test-suite/tests/draft2020-12');
/** The end-of-sequence token; the tokens before it are the 256 bytes. */
const END = 256;

interface Case {
  readonly description: string;
  readonly schema: unknown;
  readonly tests: readonly { readonly description: string; readonly data: unknown; readonly valid: boolean }[];
}

/** The outcome of one schema of the suite. */
export interface SchemaOutcome {
  readonly file: string;
  readonly description: string;
  /** Reason for which the grammar refuses the schema, or null. */
  readonly refusal: string | null;
  /** Keywords that the grammar leaves to the check at the end. */
  readonly open: readonly string[];
  /** For each invalid instance that the grammar accepts, an accepted text. */
  readonly wrong: readonly string[];
  /** Descriptions of the valid instances for which the grammar accepts none of our texts. */
  readonly narrower: readonly string[];
  readonly valid: number;
  readonly invalid: number;
}

/** Matches whole texts against schemas, in an `Engine` with one token for each byte. */
export class TextMatcher {
  readonly #engine = new Engine();
  readonly #vocabulary: number;
  #lastId = 0;

  constructor() {
    const bytes = Array.from({ length: END }, (_, byte) => Buffer.of(byte));
    const vocabulary = vocabularyFrom([...bytes, Buffer.from('end')], [END]);
    this.#vocabulary = vocabulary.id;
    this.#engine.answer({ kind: 'vocabulary', vocabulary });
  }

  /** A predicate for texts that the schema's grammar accepts, or the reason why the schema is refused. */
  compile(schema: unknown): { accepts: (text: string) => boolean } | { refusal: string } {
    this.#lastId += 1;
    const grammar = this.#lastId;
    const source = { tag: 'json-schema', val: JSON.stringify(schema) } as const;
    const compiled = this.#engine.answer({ kind: 'compile', grammar, vocabulary: this.#vocabulary, source });
    if (compiled.tag === 'err') {
      if (compiled.val.tag === 'internal') throw new Error(compiled.val.val);
      return { refusal: compiled.val.val };
    }
    return { accepts: (text) => this.#accepts(grammar, text) };
  }

  #accepts(grammar: number, text: string): boolean {
    const matcher = 1;
    const tokens = Uint32Array.from([...Buffer.from(text), END]);
    this.#ok({ kind: 'open', matcher, grammar, tokens: new Uint32Array() });
    return this.#ok({ kind: 'accept', matcher, tokens }).val === true;
  }

  #ok(request: Parameters<Engine['answer']>[0]): Extract<Reply, { tag: 'ok' }> {
    const reply = this.#engine.answer(request);
    if (reply.tag === 'err') throw new Error(`${request.kind}: ${reply.val.val}`);
    return reply;
  }
}

/** Runs the whole suite, with several texts of each instance. */
export function runSuite(): SchemaOutcome[] {
  const texts = new TextMatcher();
  return suiteCases().map(([file, each]) => outcome(texts, file, each));
}

/** The schemas of the suite with their instances, by files. */
export function suiteCases(): [file: string, each: Case][] {
  const files = readdirSync(SUITE, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.json'));
  return files.sort().flatMap((file) => {
    const cases: readonly Case[] = JSON.parse(readFileSync(path.join(SUITE, file), 'utf8'));
    return cases.map((each): [string, Case] => [file.replaceAll(path.sep, '/'), each]);
  });
}

function outcome(texts: TextMatcher, file: string, { description, schema, tests }: Case): SchemaOutcome {
  const valid = tests.filter((test) => test.valid).length;
  const counts = { file, description, valid, invalid: tests.length - valid };
  const compiled = texts.compile(schema);
  if ('refusal' in compiled) return { ...counts, refusal: compiled.refusal, open: [], wrong: [], narrower: [] };
  const wrong: string[] = [];
  const narrower: string[] = [];
  for (const test of tests) {
    const accepted = serialisations(test.data, schema).find((text) => compiled.accepts(text));
    if (accepted !== undefined && !test.valid) wrong.push(accepted);
    if (accepted === undefined && test.valid) narrower.push(test.description);
  }
  const { check } = translate({ tag: 'json-schema', val: JSON.stringify(schema) });
  return { ...counts, refusal: null, open: check?.open ?? [], wrong, narrower };
}

/** Texts of one value. They differ in whitespace, escapes, spellings of numbers and the order of properties. */
export function serialisations(value: unknown, schema: unknown): string[] {
  const orders = [value, reordered(value, (names) => names.toReversed()), reordered(value, bySchema(schema))];
  const texts = orders.flatMap((each) => {
    const compact = JSON.stringify(each);
    return [
      compact,
      spaced(each),
      JSON.stringify(each, null, 2),
      JSON.stringify(each, null, '\t'),
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters that JSON may write as themselves
      compact.replaceAll(/[^\x00-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`),
      compact.replaceAll(/"(?:[^"\\]|\\.)*"|-?\d+(?![\d.e])/g, (part) => (part.startsWith('"') ? part : `${part}.0`)),
      compact.replaceAll(/"(?:[^"\\]|\\.)*"|-?\d+(?![\d.e])/g, (part) => (part.startsWith('"') ? part : `${part}e0`)),
    ];
  });
  return [...new Set(texts)];
}

/** The text of a value as Python's `json.dumps` prints it. */
function spaced(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(spaced).join(', ')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  return `{${Object.entries(value)
    .map(([name, each]) => `${JSON.stringify(name)}: ${spaced(each)}`)
    .join(', ')}}`;
}

/** The value with the properties of each object in another order. */
function reordered(value: unknown, order: (names: string[]) => string[]): unknown {
  if (Array.isArray(value)) return value.map((item) => reordered(item, order));
  if (typeof value !== 'object' || value === null) return value;
  const entries = new Map(Object.entries(value));
  const text = order([...entries.keys()]).map(
    (name) => `${JSON.stringify(name)}:${JSON.stringify(reordered(entries.get(name), order))}`,
  );
  return JSON.parse(`{${text.join(',')}}`);
}

/** Names in the order in which they first occur anywhere in the schema: the order in which grammars want them. */
function bySchema(schema: unknown): (names: string[]) => string[] {
  const written = JSON.stringify(schema);
  const place = (name: string) => {
    const at = written.indexOf(`${JSON.stringify(name)}:`);
    return at < 0 ? written.length : at;
  };
  return (names) => names.toSorted((a, b) => place(a) - place(b));
}
