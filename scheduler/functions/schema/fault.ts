/**
 * A position in a value, as a linked list of steps. A step is a property name or the index of a list item. The list begins with the last step;
 * `parent` leads to the step before. Null is the value as a whole.
 */
export interface Place {
  readonly parent: Place | null;
  readonly step: string | number;
}

/** The first rule that a value breaks. */
export interface Fault {
  readonly place: Place | null;
  /** The end of a sentence that begins with the place, such as `is missing.`. */
  readonly message: string;
}

/** Maximum characters of a step in a pointer. Property names come from clients, so they may be long. */
const MAX_STEP_CHARACTERS = 100;
/** Maximum steps of a pointer. */
const MAX_STEPS = 20;

/** A place as a JSON pointer (RFC 6901). A pointer with too many steps keeps only the last ones. */
export function pointerTo(place: Place | null): string {
  const steps: (string | number)[] = [];
  for (let at = place; at !== null && steps.length < MAX_STEPS; at = at.parent) steps.unshift(at.step);
  return pointerOf(steps);
}

/** All steps of a place, first to last. */
export function stepsTo(place: Place | null): (string | number)[] {
  const steps: (string | number)[] = [];
  for (let at = place; at !== null; at = at.parent) steps.push(at.step);
  return steps.reverse();
}

/** Like {@link pointerTo}, for a list of steps that begins with the first step. */
export function pointerOf(steps: readonly PropertyKey[]): string {
  const escaped = (step: PropertyKey) =>
    clipped(String(step), MAX_STEP_CHARACTERS).replaceAll('~', '~0').replaceAll('/', '~1');
  return steps
    .slice(-MAX_STEPS)
    .map((step) => `/${escaped(step)}`)
    .join('');
}

/** The text, cut after `maxLength` characters. The mark `…` shows the cut. */
export function clipped(text: string, maxLength: number): string {
  return text.length > maxLength ? `${text.slice(0, maxLength)}…` : text;
}

/** JSON text of a value, cut after `maxLength` characters. Takes time in proportion to the characters that it keeps. */
export function shownJson(value: unknown, maxLength: number): string {
  let text = '';
  const write = (part: unknown): void => {
    if (text.length > maxLength) return;
    if (typeof part === 'string') text += JSON.stringify(part.slice(0, maxLength));
    else if (typeof part !== 'object' || part === null) text += JSON.stringify(part);
    else if (Array.isArray(part)) writeAll('[', part, (item) => write(item), ']');
    else
      writeAll(
        '{',
        Object.entries(part),
        ([name, member]) => {
          text += `${JSON.stringify(name.slice(0, maxLength))}:`;
          write(member);
        },
        '}',
      );
  };
  const writeAll = <T>(opening: string, parts: readonly T[], writePart: (part: T) => void, closing: string): void => {
    text += opening;
    for (const [index, part] of parts.entries()) {
      if (text.length > maxLength) return;
      if (index > 0) text += ',';
      writePart(part);
    }
    text += closing;
  };
  write(value);
  return clipped(text, maxLength);
}
