import { partsOf } from '#scheduler/invocations/result-event.ts';

/** JSON that is passed on as it was written. A stranger's output of 4 MiB takes up to a second to parse, and may be nested however deeply. */
export class JsonText {
  readonly text: string;

  /** @param text is known to be JSON */
  constructor(text: string) {
    this.text = text;
  }

  get value(): unknown {
    return JSON.parse(this.text);
  }
}

/** What a `result` event's data says. */
export function resultIn(data: string): { readonly output: unknown; readonly usage?: unknown } {
  const parts = partsOf(data);
  if (parts) return { output: new JsonText(parts.output), usage: JSON.parse(parts.usage) };
  const { output = null, usage } = JSON.parse(data);
  return { output, usage };
}

/** As `JSON.stringify` of an object that has members besides `output`; an output that is JSON text stays as it was written. */
export function jsonWithOutput({ output, ...members }: { readonly id: string; readonly output?: unknown }): string {
  if (!(output instanceof JsonText)) return JSON.stringify({ ...members, output });
  return `${JSON.stringify(members).slice(0, -1)},"output":${output.text}}`;
}
