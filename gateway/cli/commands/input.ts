import { readFileSync } from 'node:fs';
import { exactJson } from '../../app/http/exact-json.ts';
import { Failure } from '../failure.ts';

/** Describes a JSON value of the command line, for the error about text that is not JSON. */
interface ValueHint {
  readonly what: string;
  /** The command line up to the value. */
  readonly before: string;
  readonly example: string;
}

const INPUT: ValueHint = { what: 'input', before: '--input', example: '{"prompt":"Once upon a time"}' };

/**
 * Reads a JSON value. `JSON.stringify` writes the returned value without rounding its numbers. Throws {@link Failure}
 * for invalid JSON.
 *
 * @param text JSON, `@file`, or `-` for standard input; `{}` by default
 */
export function readInput(text: string | undefined, { what, before, example }: ValueHint = INPUT): unknown {
  if (text === undefined) return {};
  const [source, json] = jsonOf(text);
  try {
    return exactJson(json);
  } catch (cause) {
    throw new Failure(`The ${what}${source} is not JSON.`, {
      code: 'malformed-json',
      why: cause instanceof Error ? cause.message : String(cause),
      advice: `Quote it for the shell: ${before} '${example}', or read it from a file: ${before} @file.json.`,
    });
  }
}

function jsonOf(text: string): [source: string, json: string] {
  if (text === '-') return [' (standard input)', read(0, 'standard input')];
  if (!text.startsWith('@')) return ['', text];
  const file = text.slice(1);
  return [` (${file})`, read(file, file)];
}

function read(from: number | string, name: string): string {
  try {
    return readFileSync(from, 'utf8');
  } catch (cause) {
    throw new Failure(`${name} cannot be read.`, {
      why: cause instanceof Error ? cause.message : String(cause),
      advice: 'Name a file that you may read, or `-` for standard input.',
    });
  }
}
