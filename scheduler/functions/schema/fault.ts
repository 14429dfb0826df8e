/** A position in a value, as a linked list from the last step to the first. */
export interface Place {
  readonly parent: Place | null;
  readonly step: string | number;
}

/** The first rule that a value breaks. */
export interface Fault {
  readonly place: Place | null;
  /** If `kind` is `other`, a whole sentence; else the rest of a sentence that begins with the place (`is missing.`). */
  readonly message: string;
  /** `missing`: a required member is absent. `unexpected`: the schema `false` stands for the value at the place. */
  readonly kind: 'missing' | 'unexpected' | 'other';
}

/** Maximum characters of a step, and maximum steps, in a message: property names come from clients. */
const MAX_STEP = 100;
const MAX_STEPS = 20;

/** A place as a JSON pointer (RFC 6901). A long one is cut to its last steps. */
export function pointerTo(place: Place | null): string {
  const steps: (string | number)[] = [];
  for (let at = place; at !== null && steps.length < MAX_STEPS; at = at.parent) steps.unshift(at.step);
  return pointerOf(steps);
}

/** Like {@link pointerTo}, from the steps in order. */
export function pointerOf(steps: readonly PropertyKey[]): string {
  const escaped = (step: PropertyKey) => clipped(String(step), MAX_STEP).replaceAll('~', '~0').replaceAll('/', '~1');
  return steps
    .slice(-MAX_STEPS)
    .map((step) => `/${escaped(step)}`)
    .join('');
}

export function clipped(text: string, maxLength: number): string {
  return text.length > maxLength ? `${text.slice(0, maxLength)}…` : text;
}
