import { readFileSync } from 'node:fs';
import { exactJson } from '../../app/http/exact-json.ts';
import { Failure } from '../failure.ts';

/** The value of `--input` for `JSON.stringify`: JSON, `@file`, or `-` for standard input. Throws {@link Failure} for invalid JSON. */
export function readInput(text: string | undefined): unknown {
  if (text === undefined) return {};
  const [source, json] = text === '-' ? ['standard input', read(0, 'standard input')] : fromFile(text);
  try {
    return exactJson(json);
  } catch (cause) {
    throw new Failure(`The input (${source}) is not JSON.`, {
      code: 'malformed-json',
      why: cause instanceof Error ? cause.message : String(cause),
      advice: `Quote it for the shell: --input '{"prompt":"Once upon a time"}', or read it with --input @file.json.`,
    });
  }
}

function fromFile(text: string): [string, string] {
  if (!text.startsWith('@')) return ['--input', text];
  const file = text.slice(1);
  return [file, read(file, file)];
}

function read(from: number | string, name: string): string {
  try {
    return readFileSync(from, 'utf8');
  } catch (cause) {
    throw new Failure(`${name} cannot be read.`, { why: cause instanceof Error ? cause.message : String(cause) });
  }
}
