/** Where in a value a check is: the steps from the value itself, from the last one on. */
export interface Place {
  readonly around: Place | null;
  readonly step: string | number;
}

/** The first rule that a value breaks. */
export interface Fault {
  readonly place: Place | null;
  /** What is wrong at the place, as the rest of a sentence. */
  readonly message: string;
  /** `missing` and `unexpected` say all; everything else has a message of its own. */
  readonly kind: 'missing' | 'unexpected' | 'other';
}

/** Names come from strangers: what is told of them is bounded. */
const MAX_STEP = 100;
const MAX_STEPS = 20;

/** A place as a JSON pointer (RFC 6901); its end when it is long. */
export function pointerTo(place: Place | null): string {
  const steps: string[] = [];
  for (let at = place; at !== null && steps.length < MAX_STEPS; at = at.around) {
    steps.unshift(clipped(String(at.step), MAX_STEP).replaceAll('~', '~0').replaceAll('/', '~1'));
  }
  return steps.map((step) => `/${step}`).join('');
}

export function clipped(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most)}…` : text;
}
