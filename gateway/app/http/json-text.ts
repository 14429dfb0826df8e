import { partsOf } from '#scheduler/invocations/result-event.ts';

/** JSON that the gateway passes on unparsed. A tenant's output of 4 MiB takes up to a second to parse, and may be nested to any depth. */
export class JsonText {
  readonly text: string;

  /** @param text valid JSON */
  constructor(text: string) {
    this.text = text;
  }

  get value(): unknown {
    return JSON.parse(this.text);
  }
}

/** Splits the data of a `result` event. */
export function resultIn(data: string): { readonly output: unknown; readonly usage?: unknown } {
  const parts = partsOf(data);
  if (parts) return { output: new JsonText(parts.output), usage: JSON.parse(parts.usage) };
  const { output = null, usage } = JSON.parse(data);
  return { output, usage };
}

/** Like `JSON.stringify` of an object with members besides `output`, but keeps the text of an output that is a `JsonText`. */
export function jsonWithOutput({ output, ...members }: { readonly id: string; readonly output?: unknown }): string {
  if (!(output instanceof JsonText)) return JSON.stringify({ ...members, output });
  return `${JSON.stringify(members).slice(0, -1)},"output":${output.text}}`;
}
