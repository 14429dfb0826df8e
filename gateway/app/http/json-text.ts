import { jsonValue } from '#scheduler/functions/schema/json-value.ts';
import { partsOf } from '#scheduler/invocations/types.ts';
import type { Usage } from '../schemas/invocations.ts';
import { assertShape } from './json-shape.ts';

/** JSON that the gateway passes on unparsed. A tenant's output of 4 MiB takes up to a second to parse, and may be nested to any depth. */
export class JsonText {
  readonly text: string;

  /** @param text valid JSON */
  constructor(text: string) {
    this.text = text;
  }

  get value(): unknown {
    return jsonValue(this.text);
  }

  /** The value of a text that is cheap to parse: not longer than `maxCharacters`, and of the shape that requests may have. Undefined for others. */
  smallValue(maxCharacters: number): unknown {
    if (this.text.length > maxCharacters) return undefined;
    try {
      assertShape(new TextEncoder().encode(this.text), 'The output');
    } catch {
      return undefined;
    }
    return this.value;
  }
}

/** Splits the data of a `result` event into output and usage. The output stays text where the data has the form that `resultData` writes. */
export function resultIn(data: string): { readonly output: unknown; readonly usage?: Usage } {
  const parts = partsOf(data);
  if (parts) return { output: new JsonText(parts.output), usage: JSON.parse(parts.usage) };
  const { output = null, usage } = JSON.parse(data);
  return { output, usage };
}

const OUTPUT = ',"output":';

/** Like `JSON.stringify` of an object with members besides `output`, but keeps the text of an output that is a `JsonText`. */
export function jsonWithOutput({ output, ...members }: { readonly id: string; readonly output?: unknown }): string {
  if (!(output instanceof JsonText)) return JSON.stringify({ ...members, output });
  return `${JSON.stringify(members).slice(0, -1)}${OUTPUT}${output.text}}`;
}

/** Parses what `jsonWithOutput` wrote, but keeps the text of the output. @throws SyntaxError */
export function parseWithOutput(text: string): unknown {
  const at = outputAt(text);
  if (at < 0) return JSON.parse(text);
  const members: object = JSON.parse(`${text.slice(0, at)}}`);
  return { ...members, output: new JsonText(text.slice(at + OUTPUT.length, -1)) };
}

/** Index of the comma before the member `output`, in JSON without spaces; -1 without that member. Does not scan the output. */
function outputAt(text: string): number {
  let depth = 0;
  let isInString = false;
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (isInString) {
      if (character === '\\') at += 1;
      else if (character === '"') isInString = false;
    } else if (character === '"') isInString = true;
    else if (character === '{' || character === '[') depth += 1;
    else if (character === '}' || character === ']') depth -= 1;
    else if (character === ',' && depth === 1 && text.startsWith(OUTPUT, at)) return at;
  }
  return -1;
}
