import type { Sampler, StepRequest } from '../../protocol/calls.ts';

/** Steps in a row that must have continued each other before the next one is guessed. */
const STEADY_STEPS = 2;
/** Number of guesses in vain in a row up to which the distance to the next guess grows: to 2 ** 4 - 2 = 14 steps. */
const MAX_VAIN_COUNT = 4;

/**
 * Counts the latest steps of a queue that each continued the previous one. After `STEADY_STEPS` of them, a guess of the next step is probably
 * right. One guess in vain changes nothing, because a quick inferlet may be late once. Each further one in a row more than doubles the distance
 * to the next guess, up to 14 steps.
 */
export class StepTrail {
  #last: { readonly step: LastStep; readonly token: number } | undefined;
  /** Latest steps that each continued the previous one. Guesses in vain make it smaller, even negative. */
  #count = 0;
  /** Guesses in vain since the last right one. */
  #vainCount = 0;

  /** True when the next step will probably continue the last one. */
  get isSteady(): boolean {
    return this.#count >= STEADY_STEPS;
  }

  /** Records a step that has ended, and the token that it gave; undefined if it gave anything but one token. */
  noteStep(request: StepRequest, token: number | undefined): void {
    const continued = this.#last !== undefined && continuesStep(this.#last.step, this.#last.token, request);
    this.#count = continued ? this.#count + 1 : Math.min(this.#count, 0);
    // Do not keep the request itself: its lists may be long, and no limit counts them once the call is done.
    const step = { positions: request.positions.slice(-1), output: request.output };
    this.#last = token === undefined ? undefined : { step, token };
  }

  /** Records whether a guess was worth its time. */
  noteGuess(isRight: boolean): void {
    this.#vainCount = isRight ? 0 : Math.min(this.#vainCount + 1, MAX_VAIN_COUNT);
    if (!isRight) this.#count = STEADY_STEPS - (2 ** this.#vainCount - 2);
  }
}

/** The part of a step's request that `continuesStep` compares with the next one's. */
type LastStep = Pick<StepRequest, 'positions' | 'output'>;

/** True for a step that takes one token and samples one, without masks and without an adapter: the host can predict such a request. */
export function isPlainStep({ tokens, positions, mask, allowed, adapter, rows, output }: StepRequest): boolean {
  const isBare = mask === undefined && allowed === undefined && adapter === undefined;
  return isBare && tokens.length === 1 && positions.length === 1 && rows === 1 && output.tag === 'sample';
}

/** True when `next` continues `last`, whose result was `token`: it takes that token at the next position, with the same sampler. */
export function continuesStep(last: LastStep, token: number, next: StepRequest): boolean {
  if (!isPlainStep(next) || next.tokens[0] !== token) return false;
  const { output, positions } = last;
  if (next.positions[0] !== (positions.at(-1) ?? Number.NaN) + 1) return false;
  return output.tag === 'sample' && next.output.tag === 'sample' && isSameSampler(output.val, next.output.val);
}

function isSameSampler(a: Sampler, b: Sampler): boolean {
  return (
    a.temperature === b.temperature && a.topK === b.topK && a.topP === b.topP && a.minP === b.minP && a.seed === b.seed
  );
}
